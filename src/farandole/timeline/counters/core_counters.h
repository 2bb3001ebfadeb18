// Whether threads get the cores that they need: how long a thread has waited for one, and which cores of the
// allocation nothing has used.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

// A thread of this process.
class ThreadCore {
 public:
  explicit ThreadCore(int tid);
  // Time since its start in which it could run, but no core was free for it; nullopt if the kernel does
  // not count this.
  std::optional<std::int64_t> waited_ns() const;
  std::optional<int> number() const;  // of the core on which it runs or ran last

 private:
  std::string folder_;
};

// The cores of this machine that the job may use.
class AllocatedCores {
 public:
  AllocatedCores();
  // Returns those that were idle for at least 90 % of the time since the construction, ascending; none if the
  // system does not tell which cores belong to the job.
  std::vector<int> idle() const;

 private:
  struct Use {
    std::int64_t idle = 0, all = 0;  // clock ticks since the machine started
  };
  static std::map<int, Use> read();
  std::map<int, Use> start_;
};

// The numbers of "0-2,7", as the kernel writes them; the largest part that can be read.
std::vector<int> cores_in(std::string_view list);

}  // namespace farandole

// Which collective of GPUs was being launched at past times. NCCL's kernels have the names of algorithms;
// with this, they get the names of buckets. NCCL may launch a kernel on a thread of its own, but does so
// before the call has returned.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace farandole {

class CollectiveLaunches {
 public:
  // Times do not decrease from call to call.
  void add(std::string_view name, std::int64_t begin_ns, std::int64_t end_ns);
  // No value if none was being launched, or if it is too long ago.
  std::optional<std::string> at(std::int64_t ns) const;

 private:
  static constexpr std::size_t kept = 1 << 14;  // enough for hundreds of steps
  struct Launch {
    std::string name;
    std::int64_t begin_ns, end_ns;
  };
  mutable std::mutex mutex_;
  std::deque<Launch> launches_;  // oldest first
};

}  // namespace farandole

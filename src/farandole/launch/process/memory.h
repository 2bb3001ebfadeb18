// How much memory the processes of a job may use on this node, and whether the kernel killed one of them
// because it was exhausted.
// Thread safety: none; use from one thread at a time. Any thread may call the functions at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/process/launch_environment.h"
#include "farandole/launch/process/machine.h"

namespace farandole {

class MemoryWatch {
 public:
  // The kernel's files; tests pass their own.
  struct Places {
    std::vector<std::filesystem::path> groups = control_group_folders("memory");
    std::filesystem::path vmstat = "/proc/vmstat";
    std::filesystem::path kernel_log = "/dev/kmsg";
  };

  MemoryWatch();
  explicit MemoryWatch(Places places);  // Reads the counters.

  // Returns a short text that explains why `pid`, a process of this control group, was probably killed for
  // lack of memory; "" if nothing indicates it.
  std::string evidence(pid_t pid) const;

  // Returns the smallest limit of the control group and its parents.
  std::optional<std::int64_t> limit_bytes() const;

 private:
  std::optional<std::int64_t> group_kills() const;
  std::optional<std::int64_t> host_kills() const;
  std::string kernel_line(pid_t pid) const;

  const Places places_;
  const std::optional<std::int64_t> group_before_, host_before_;
  const std::int64_t start_us_ = now_ns() / 1000;
};

// What Slurm grants on this node; nullopt without Slurm or if it grants all memory (--mem=0).
// A pure function.
std::optional<std::int64_t> slurm_memory_bytes(const Environment& environment);

// The smallest of the machine's memory, the limit of the control group, and what Slurm grants; nullopt if
// none is known.
std::optional<std::int64_t> job_memory_bytes();

// What the machine can still give without swapping; nullopt if it does not say.
std::optional<std::int64_t> available_memory_bytes();

}  // namespace farandole

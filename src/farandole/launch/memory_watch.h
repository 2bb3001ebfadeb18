// Whether the kernel killed a process for want of memory: what its counters said before and after, and its
// log where that may be read. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/launch/control_group.h"

namespace farandole {

class MemoryWatch {
 public:
  // Where the kernel says it; tests give their own.
  struct Places {
    std::vector<std::filesystem::path> groups = control_group_folders("memory");
    std::filesystem::path vmstat = "/proc/vmstat";
    std::filesystem::path kernel_log = "/dev/kmsg";
  };

  MemoryWatch();
  explicit MemoryWatch(Places places);  // notes the counters

  // Why `pid`, of this process' control group, seems to have been killed for want of memory, in a few words;
  // "" where nothing says so.
  std::string evidence(pid_t pid) const;

  // The smallest limit of the control group and those around it.
  std::optional<std::int64_t> limit_bytes() const;

 private:
  std::optional<std::int64_t> group_kills() const;
  std::optional<std::int64_t> host_kills() const;
  std::string kernel_line(pid_t pid) const;

  const Places places_;
  const std::optional<std::int64_t> group_before_, host_before_;
  const std::int64_t start_us_ = now_ns() / 1000;
};

}  // namespace farandole

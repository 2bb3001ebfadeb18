// The state of another process of this host, from /proc.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

namespace farandole {

struct ProcessState {
  // R running, S sleeping, D in the kernel, T stopped, t traced, Z ended but not waited for.
  char state = '?';
  int wait_status = 0;  // for Z: the status that waitpid() would return
};

// std::nullopt if there is no such process or /proc hides it.
std::optional<ProcessState> read_process_state(pid_t pid);

// "killed by SIGKILL" or "ended with exit code 3", from a status of waitpid().
std::string describe_end(int wait_status);

}  // namespace farandole

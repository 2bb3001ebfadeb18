// What /proc says about another process of this host. Usable from any thread.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

namespace farandole {

struct ProcessState {
  char state =
      '?';  // R running, S sleeping, D in the kernel, T stopped, t traced, Z ended but not waited for
  int wait_status = 0;  // for Z: as waitpid() would give it
};

// Nothing where there is no such process, or /proc hides it.
std::optional<ProcessState> read_process_state(pid_t pid);

// "killed by SIGKILL" or "ended with exit code 3", from a status as waitpid() gives it.
std::string describe_end(int wait_status);

}  // namespace farandole

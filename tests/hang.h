// Ends a process that hangs, and says where it hung.
#pragma once

#include <csignal>
#include <cstdio>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace farandole {

// After `seconds`, prints where all threads of this process are, if gdb is installed, and ends the process.
inline void end_if_it_hangs(unsigned seconds) {
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  std::signal(SIGALRM, [](int) {
    char own[16];
    std::snprintf(own, sizeof own, "%d", ::getpid());
    const auto gdb = ::_Fork();  // unlike fork(), it may be called wherever the thread was interrupted
    if (gdb == 0) {
      ::dup2(STDERR_FILENO, STDOUT_FILENO);
      // An alarm would not end gdb, which inherits that SIGALRM is blocked in this handler.
      ::execlp("timeout", "timeout", "60", "gdb", "-nx", "-batch", "-p", own, "-ex",
               "thread apply all backtrace 20", nullptr);
      ::_exit(127);
    }
    ::waitpid(gdb, nullptr, 0);
    std::signal(SIGALRM, SIG_DFL);
    std::raise(SIGALRM);
  });
  ::alarm(seconds);
}

}  // namespace farandole

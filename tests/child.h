// A forked process, for tests of how a rank sees another one. The destructor kills it and waits for it.
#pragma once

#include <csignal>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace farandole {

class Child {
 public:
  // Runs `body` in the child, which exits with the returned value.
  template <class Body>
  explicit Child(Body body) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(body());
  }
  ~Child() { reap(SIGKILL); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }
  // Returns after the child has ended, without reaping it.
  void await_end() const {
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void await_stop() const {
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOWAIT);
  }
  void reap(int number = 0) {
    if (pid_ <= 0) return;
    if (number != 0) signal(number);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  static int sleep_forever() {
    for (;;) ::pause();
  }

 private:
  pid_t pid_;
};

}  // namespace farandole

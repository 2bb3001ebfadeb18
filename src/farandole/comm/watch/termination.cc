#include "farandole/comm/watch/termination.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace farandole {
namespace {

// A signal handler has no other way to them.
constinit std::atomic<int> event_of_handler{-1};
constinit std::atomic<pid_t> owner_of_handler{0};

void handle_with(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, nullptr);
}

void on_sigterm(int) {
  const int saved_errno = errno;
  if (::getpid() != owner_of_handler) {  // a forked child, which nobody watches
    handle_with(SIG_DFL);
    ::raise(SIGTERM);
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto ignored = ::write(event_of_handler, &one, sizeof one);
  errno = saved_errno;
}

bool is_handled_by(void (*handler)(int)) {
  struct sigaction present;
  return ::sigaction(SIGTERM, nullptr, &present) == 0 && (present.sa_flags & SA_SIGINFO) == 0 &&
         present.sa_handler == handler;
}

}  // namespace

Termination::Termination() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (event_.get() < 0 || !is_handled_by(SIG_DFL)) return;
  event_of_handler = event_.get();
  owner_of_handler = ::getpid();
  handle_with(&on_sigterm);
}

Termination::~Termination() {
  if (is_handled_by(&on_sigterm)) handle_with(SIG_DFL);
  event_of_handler = -1;
  if (requested()) go_on();
}

bool Termination::requested() const {
  pollfd polled{event_.get(), POLLIN, 0};
  return ::poll(&polled, 1, 0) > 0;
}

void Termination::go_on() {
  handle_with(SIG_DFL);
  sigset_t only_this;
  ::sigemptyset(&only_this);
  ::sigaddset(&only_this, SIGTERM);
  ::pthread_sigmask(SIG_UNBLOCK, &only_this, nullptr);
  ::raise(SIGTERM);
  ::_exit(128 + SIGTERM);
}

}  // namespace farandole

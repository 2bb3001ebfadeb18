#include "farandole/base/process/signal_event.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace farandole {
namespace {

// Global variables, because a signal handler has no other access to them. 0 means none, otherwise
// the descriptor + 1.
constinit std::array<std::atomic<int>, NSIG> event_of_handler{};
constinit std::atomic<pid_t> owner_of_handler{0};

void handle_with(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(number, &action, nullptr);
}

void on_signal(int number) {
  const int saved_errno = errno;
  if (::getpid() != owner_of_handler) {  // a forked child, which has no watchdog
    handle_with(number, SIG_DFL);
    ::raise(number);  // takes effect when this handler returns
    errno = saved_errno;
    return;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto ignored =
      ::write(event_of_handler[static_cast<std::size_t>(number)] - 1, &one, sizeof one);
  errno = saved_errno;
}

bool is_handled_by(int number, void (*handler)(int)) {
  struct sigaction present;
  return ::sigaction(number, nullptr, &present) == 0 && (present.sa_flags & SA_SIGINFO) == 0 &&
         present.sa_handler == handler;
}

}  // namespace

SignalEvent::SignalEvent(int number, Afterwards afterwards, Takes takes)
    : number_(number), afterwards_(afterwards), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const bool free = is_handled_by(number, SIG_DFL) ||
                    (afterwards == Afterwards::ignored && is_handled_by(number, SIG_IGN)) ||
                    (takes == Takes::from_others && is_handled_by(number, &on_signal));
  if (event_.get() < 0 || !free) return;
  event_of_handler[static_cast<std::size_t>(number)] = event_.get() + 1;
  owner_of_handler = ::getpid();
  handle_with(number, &on_signal);
}

void SignalEvent::give_back() {
  auto& taken_by = event_of_handler[static_cast<std::size_t>(number_)];
  if (!is_handled_by(number_, &on_signal) || taken_by != event_.get() + 1) return;
  handle_with(number_, afterwards_ == Afterwards::ignored ? SIG_IGN : SIG_DFL);
  taken_by = 0;
}

bool SignalEvent::requested() const {
  pollfd polled{event_.get(), POLLIN, 0};
  return ::poll(&polled, 1, 0) > 0;
}

bool SignalEvent::take() {
  std::uint64_t times = 0;
  return ::read(event_.get(), &times, sizeof times) == sizeof times;
}

Termination::Termination() : signal_(SIGTERM) {}

Termination::~Termination() {
  signal_.give_back();
  if (requested()) go_on();
}

void Termination::go_on() {
  ::signal(SIGTERM, SIG_DFL);
  sigset_t only_this;
  ::sigemptyset(&only_this);
  ::sigaddset(&only_this, SIGTERM);
  ::pthread_sigmask(SIG_UNBLOCK, &only_this, nullptr);
  ::raise(SIGTERM);
  ::_exit(128 + SIGTERM);
}

}  // namespace farandole

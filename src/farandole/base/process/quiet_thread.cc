#include "farandole/base/process/quiet_thread.h"

#include <csignal>
#include <cstdint>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "farandole/base/error.h"

namespace farandole {

std::thread start_quiet_thread(std::function<void()> body) {
  struct SignalsBlocked {
    SignalsBlocked() {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  };
  const SignalsBlocked blocked;
  return std::thread(std::move(body));
}

void give_way() {
  constexpr int niceness = 10;
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  if (::getpriority(PRIO_PROCESS, thread) < niceness) ::setpriority(PRIO_PROCESS, thread, niceness);
}

StopEvent::StopEvent() : event_(::eventfd(0, EFD_CLOEXEC)) {
  if (event_.get() < 0) throw system_error("eventfd", "to stop a thread");
}

void StopEvent::stop() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto ignored = ::write(event_.get(), &one, sizeof one);
}

bool StopEvent::sleep(std::chrono::nanoseconds time) const {
  pollfd stopped{event_.get(), POLLIN, 0};
  const auto wait_ms = std::chrono::ceil<std::chrono::milliseconds>(time).count();
  return ::poll(&stopped, 1, static_cast<int>(wait_ms)) == 0;
}

}  // namespace farandole

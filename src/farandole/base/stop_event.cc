#include "farandole/base/stop_event.h"

#include <cstdint>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "farandole/base/error.h"

namespace farandole {

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

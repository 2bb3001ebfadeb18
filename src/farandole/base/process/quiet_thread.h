// Helper threads that do not disturb the threads of the program.
// Thread safety: any thread may call this at any time.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "farandole/base/files/owned_descriptor.h"

namespace farandole {

// Starts a thread that blocks all signals, because the program's signals are for the program's own threads.
std::thread start_quiet_thread(std::function<void()> body);

// Tells a thread that sleeps in poll() to end.
class StopEvent {
 public:
  StopEvent();  // throws Error if no file descriptor is left
  void stop() noexcept;
  int descriptor() const { return event_.get(); }  // readable once stop() was called
  // Returns false if stop() was called before or during the sleep.
  bool sleep(std::chrono::nanoseconds time) const;

 private:
  OwnedDescriptor event_;
};

}  // namespace farandole

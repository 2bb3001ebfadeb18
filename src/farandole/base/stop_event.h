// Tells a thread that sleeps in poll() to end.
// Thread safety: any thread may call this at any time.
#pragma once

#include <chrono>

#include "farandole/base/owned_descriptor.h"

namespace farandole {

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

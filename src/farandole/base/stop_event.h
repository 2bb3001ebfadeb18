// How a thread that sleeps in poll() is told to end. stop() is for any thread, also while another waits.
#pragma once

#include <chrono>

#include "farandole/base/owned_descriptor.h"

namespace farandole {

class StopEvent {
 public:
  StopEvent();  // throws Error where no descriptor is left
  void stop() noexcept;
  int descriptor() const { return event_.get(); }  // readable once stopped
  // False: it was stopped, before or meanwhile.
  bool sleep(std::chrono::nanoseconds time) const;

 private:
  OwnedDescriptor event_;
};

}  // namespace farandole

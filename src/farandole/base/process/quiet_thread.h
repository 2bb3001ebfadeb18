// Helper threads that do not disturb the threads of the program.
// Thread safety: any thread may call this at any time.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "farandole/base/files/file_bytes.h"

namespace farandole {

// Starts a thread that blocks all signals, because the program's signals are for the program's own threads.
std::thread start_quiet_thread(std::function<void()> body);

// The calling thread, and threads that it starts, give way to the threads that train. The lowest priority
// gets 1.5 % of a core that ranks keep busy while they wait for each other, which is too little. This one
// gets 10 %.
void give_way();

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

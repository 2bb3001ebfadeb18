// Delays SIGTERM until this process has reported what it knows. mpirun sends SIGTERM to the survivors of a
// lost rank, and SIGKILL one second later. There is one object per process.
// Thread safety: the main thread creates it; one thread uses it.
#pragma once

#include "farandole/comm/watch/signal_event.h"

namespace farandole {

class Termination {
 public:
  Termination();
  ~Termination();  // ends the process if SIGTERM has arrived
  Termination(const Termination&) = delete;
  Termination& operator=(const Termination&) = delete;

  int descriptor() const { return signal_.descriptor(); }  // readable after SIGTERM has arrived
  bool requested() const { return signal_.requested(); }
  // Ends the process as SIGTERM would have done.
  [[noreturn]] static void go_on();

 private:
  SignalEvent signal_;
};

}  // namespace farandole

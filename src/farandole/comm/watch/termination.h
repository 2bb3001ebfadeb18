// SIGTERM, put off until this process has said what it knows: mpirun sends it to the survivors of a lost
// rank, and SIGKILL a second later. One object a process; made by the main thread, used by the one that
// polls.
#pragma once

#include "farandole/comm/watch/signal_event.h"

namespace farandole {

class Termination {
 public:
  Termination();
  ~Termination();  // ends the process where it was asked to
  Termination(const Termination&) = delete;
  Termination& operator=(const Termination&) = delete;

  int descriptor() const { return signal_.descriptor(); }  // readable once SIGTERM has come
  bool requested() const { return signal_.requested(); }
  // Ends the process as SIGTERM would have.
  [[noreturn]] static void go_on();

 private:
  SignalEvent signal_;
};

}  // namespace farandole

// Converts a signal to an event: the signal's handler makes a descriptor readable. One object per process
// and signal gets it.
// Thread safety: only the main thread may create and destroy this. One thread may use it.
#pragma once

#include "farandole/base/files/file_bytes.h"

namespace farandole {

class SignalEvent {
 public:
  enum class Afterwards { as_before, ignored };
  enum class Takes { if_free, from_others };
  // Takes the signal if its default action would end the process or, with Afterwards::ignored, if the signal
  // is ignored. With Takes::from_others, it also takes it from another SignalEvent, for which it does not
  // arrive any more. A handler of the program, set before or later, is not replaced. In a forked child, the
  // signal has its original effect.
  explicit SignalEvent(int number, Afterwards afterwards = Afterwards::as_before,
                       Takes takes = Takes::if_free);
  ~SignalEvent() { give_back(); }
  SignalEvent(const SignalEvent&) = delete;
  SignalEvent& operator=(const SignalEvent&) = delete;

  int descriptor() const { return event_.get(); }  // readable after the signal has arrived
  bool requested() const;                          // true if the signal has arrived
  bool take();                                     // as requested(), and resets the event
  void give_back();                                // later signals do not arrive here

 private:
  const int number_;
  const Afterwards afterwards_;
  OwnedDescriptor event_;
};

// Delays SIGTERM until this process has reported what it knows. mpirun sends SIGTERM to the survivors of a
// lost rank, and SIGKILL one second later. There is one object per process.
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

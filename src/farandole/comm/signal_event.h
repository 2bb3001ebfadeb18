// A signal as something to wait for: its handler makes a descriptor readable. One object a process and
// signal; made and destroyed by the main thread, used by the one that waits.
#pragma once

#include "farandole/launch/child_process.h"

namespace farandole {

class SignalEvent {
 public:
  // Takes the signal where it would end the process; a handler of the program's, now or later, is left alone.
  // A process that is forked from this one gets it as if nothing had been taken.
  explicit SignalEvent(int number);
  ~SignalEvent() { give_back(); }
  SignalEvent(const SignalEvent&) = delete;
  SignalEvent& operator=(const SignalEvent&) = delete;

  int descriptor() const { return event_.get(); }  // readable once the signal has come
  bool requested() const;                          // whether it has
  bool take();                                     // the same, and from now on it has not
  void give_back();                                // what comes later is the system's again

 private:
  const int number_;
  OwnedDescriptor event_;
};

}  // namespace farandole

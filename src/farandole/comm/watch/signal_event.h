// A signal as something to wait for: its handler makes a descriptor readable. One object a process and
// signal; made and destroyed by the main thread, used by the one that waits.
#pragma once

#include "farandole/base/owned_descriptor.h"

namespace farandole {

class SignalEvent {
 public:
  enum class Afterwards { as_before, ignored };
  // Takes the signal where it would end the process or, if it is to be ignored afterwards, is ignored; a
  // handler of the program's, now or later, is left alone. A process that is forked from this one gets it as
  // if nothing had been taken.
  explicit SignalEvent(int number, Afterwards afterwards = Afterwards::as_before);
  ~SignalEvent() { give_back(); }
  SignalEvent(const SignalEvent&) = delete;
  SignalEvent& operator=(const SignalEvent&) = delete;

  int descriptor() const { return event_.get(); }  // readable once the signal has come
  bool requested() const;                          // whether it has
  bool take();                                     // the same, and from now on it has not
  void give_back();                                // what comes later does not come here

 private:
  const int number_;
  const Afterwards afterwards_;
  OwnedDescriptor event_;
};

}  // namespace farandole

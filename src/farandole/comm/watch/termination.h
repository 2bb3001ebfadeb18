// SIGTERM, put off until this process has said what it knows: mpirun sends it to the survivors of a lost
// rank, and SIGKILL a second later. One object a process; made by the main thread, used by the one that
// polls.
#pragma once

#include "farandole/launch/child_process.h"

namespace farandole {

class Termination {
 public:
  // Takes SIGTERM where it would end the process; a handler of the program's, now or later, is left alone.
  Termination();
  ~Termination();  // gives it back
  Termination(const Termination&) = delete;
  Termination& operator=(const Termination&) = delete;

  int descriptor() const { return event_.get(); }  // readable once SIGTERM has come
  bool requested() const;
  // Ends the process as SIGTERM would have.
  [[noreturn]] static void go_on();

 private:
  OwnedDescriptor event_;
};

}  // namespace farandole

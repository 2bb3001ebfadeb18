#include "farandole/comm/watch/termination.h"

#include <csignal>
#include <unistd.h>

namespace farandole {

Termination::Termination() : signal_(SIGTERM) {}

Termination::~Termination() {
  signal_.give_back();
  if (requested()) go_on();
}

void Termination::go_on() {
  ::signal(SIGTERM, SIG_DFL);
  sigset_t only_this;
  ::sigemptyset(&only_this);
  ::sigaddset(&only_this, SIGTERM);
  ::pthread_sigmask(SIG_UNBLOCK, &only_this, nullptr);
  ::raise(SIGTERM);
  ::_exit(128 + SIGTERM);
}

}  // namespace farandole

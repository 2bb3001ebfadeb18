#include "farandole/base/quiet_thread.h"

#include <csignal>
#include <pthread.h>
#include <utility>

namespace farandole {

std::thread start_quiet_thread(std::function<void()> body) {
  struct SignalsBlocked {
    SignalsBlocked() {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  };
  const SignalsBlocked blocked;
  return std::thread(std::move(body));
}

}  // namespace farandole

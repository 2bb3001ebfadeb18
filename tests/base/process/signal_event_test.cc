#include "farandole/base/process/signal_event.h"

#include <csignal>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace farandole {
namespace {

TEST(SignalEvent, IsThereOnceItWasTaken) {
  SignalEvent event(SIGUSR2);
  EXPECT_FALSE(event.requested());
  ::raise(SIGUSR2);
  ::raise(SIGUSR2);
  EXPECT_TRUE(event.requested());
  EXPECT_TRUE(event.take());
  EXPECT_FALSE(event.take());
}

// A signal must end a worker that the program has forked, and the parent must not receive it.
TEST(SignalEvent, OfAForkedProcessIsItsOwn) {
  const SignalEvent event(SIGTERM);
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  ::kill(child, SIGTERM);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  EXPECT_FALSE(event.requested());
}

TEST(SignalEvent, LeavesAHandlerOfTheProgramAlone) {
  static volatile sig_atomic_t seen = 0;
  struct sigaction own {
  }, before{};
  own.sa_handler = [](int) { seen = seen + 1; };
  ::sigaction(SIGUSR1, &own, &before);
  {
    SignalEvent event(SIGUSR1);
    ::raise(SIGUSR1);
    EXPECT_FALSE(event.requested());
  }
  ::raise(SIGUSR1);
  EXPECT_EQ(seen, 2);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(SignalEvent, IsIgnoredBeforeAndAfterwards) {
  ::signal(SIGUSR2, SIG_IGN);
  {
    SignalEvent event(SIGUSR2, SignalEvent::Afterwards::ignored);
    ::raise(SIGUSR2);
    EXPECT_TRUE(event.take());
  }
  ::raise(SIGUSR2);
  ::signal(SIGUSR2, SIG_DFL);
}

}  // namespace
}  // namespace farandole

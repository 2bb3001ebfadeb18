#include "farandole/base/process/process_state.h"

#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace farandole {
namespace {

TEST(ProcessState, OfNobody) {
  EXPECT_FALSE(read_process_state(-1));
  EXPECT_FALSE(read_process_state(0x7ffffff));
}

TEST(ProcessState, TellsWhichSignalsAreIgnored) {
  EXPECT_FALSE(ignores_signal(::getpid(), SIGUSR1));
  ::signal(SIGUSR1, SIG_IGN);
  EXPECT_TRUE(ignores_signal(::getpid(), SIGUSR1));
  EXPECT_FALSE(ignores_signal(::getpid(), SIGUSR2));
  ::signal(SIGUSR1, [](int) {});
  EXPECT_FALSE(ignores_signal(::getpid(), SIGUSR1)) << "it is handled";
  ::signal(SIGUSR1, SIG_DFL);
  EXPECT_FALSE(ignores_signal(-1, SIGTERM));
}

TEST(ProcessState, FindsChildrenOfChildren) {
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t grandchild = ::fork();
    if (grandchild == 0)
      for (;;) ::pause();
    [[maybe_unused]] const auto written = ::write(told[1], &grandchild, sizeof grandchild);
    for (;;) ::pause();
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(told[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  EXPECT_THAT(descendants_of(::getpid()), testing::ElementsAre(child, grandchild));
  ::kill(grandchild, SIGKILL);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(told[0]);
  ::close(told[1]);
}

}  // namespace
}  // namespace farandole

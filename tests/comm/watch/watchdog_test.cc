#include "farandole/comm/watch/watchdog.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_message.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

TEST(WatchdogOptions, FromText) {
  EXPECT_EQ(WatchdogOptions::parse_seconds("--stall-seconds", "2.5"), 2.5);
  EXPECT_EQ(WatchdogOptions::parse_seconds("--stall-seconds", "0"), 0);
  for (const char* wrong : {"", "x", "1x", "-1", "inf", "nan", " 1"}) {
    EXPECT_THAT(message_of<UserError>([&] { WatchdogOptions::parse_seconds("--stall-seconds", wrong); }),
                testing::StartsWith("--stall-seconds is '"))
        << wrong;
  }
}

TEST(WatchdogOptions, FromTheEnvironment) {
  ::setenv("FARANDOLE_STALL_SECONDS", "3", 1);
  ::setenv("FARANDOLE_STALL_ABORT", "soon", 1);
  EXPECT_THROW(WatchdogOptions::from_environment(), UserError);
  ::setenv("FARANDOLE_STALL_ABORT", "", 1);
  EXPECT_EQ(WatchdogOptions::from_environment().stall_seconds, 3);
  EXPECT_EQ(WatchdogOptions::from_environment().stall_abort_seconds, 1800);
  ::unsetenv("FARANDOLE_STALL_SECONDS");
  ::unsetenv("FARANDOLE_STALL_ABORT");
  EXPECT_EQ(WatchdogOptions::from_environment().stall_seconds, 60);
}

}  // namespace
}  // namespace farandole

#include "farandole/base/error.h"

#include <cerrno>
#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(Error, KindsCarryTheExitCodesThatScriptsRelyOn) {
  EXPECT_EQ(static_cast<int>(Error("x").exit_code()), 1);
  EXPECT_EQ(static_cast<int>(UserError("x").exit_code()), 64);
  EXPECT_EQ(static_cast<int>(CorruptInput("x").exit_code()), 65);
  EXPECT_EQ(static_cast<int>(Error("x", ExitCode::peer_lost).exit_code()), 70);
  EXPECT_EQ(static_cast<int>(Error("x", ExitCode::preempted).exit_code()), 75);
}

TEST(Error, SystemErrorNamesCallPathAndReason) {
  errno = ENOENT;
  EXPECT_STREQ(system_error("open", "/a/b").what(), "open /a/b: No such file or directory");
}

}  // namespace
}  // namespace farandole

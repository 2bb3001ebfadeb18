#include "farandole/base/log.h"

#include <gmock/gmock.h>

namespace farandole {
namespace {

TEST(Log, DoesNotControlTheTerminal) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log_warning("{} is damaged\nin line 2", "run\x1b[2J\r");
  const auto said = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, testing::HasSubstr("run?[2J? is damaged\nin line 2\n"));
}

}  // namespace
}  // namespace farandole

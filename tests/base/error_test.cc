#include "farandole/base/error.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <set>

#include "farandole/base/dtype.h"

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

TEST(DType, NamesAreDifferentAndSizesKnown) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(DType::boolean); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_NE(name_of(dtype), "unknown");
    EXPECT_GT(size_of(dtype), 0u);
    names.insert(name_of(dtype));
  }
  EXPECT_EQ(names.size(), 8u);
  EXPECT_EQ(name_of(DType::boolean), "bool");
  EXPECT_EQ(size_of(DType::bfloat16), 2u);
}

}  // namespace
}  // namespace farandole

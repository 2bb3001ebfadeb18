#include "farandole/launch/process/child_process.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

using namespace std::chrono_literals;

TEST(CommandOutput, IsWhatAProgramPrints) {
  EXPECT_EQ(output_of({"sh", "-c", "echo one; echo two >&2"}, 60s), "one\ntwo\n");
  EXPECT_EQ(output_of({"cat"}, 60s), "") << "there is no input to wait for";
  EXPECT_EQ(output_of({"head", "-c", "2000000", "/dev/zero"}, 60s)->size(), 1u << 20);
}

TEST(CommandOutput, IsNothingOfAFailure) {
  EXPECT_FALSE(output_of({"sh", "-c", "echo one; exit 1"}, 60s));
  EXPECT_FALSE(output_of({"sh", "-c", "kill -9 $$"}, 60s));
  EXPECT_EQ(run_command({"sh", "-c", "echo one; exit 3"}, 60s)->exit_code, 3);
  EXPECT_EQ(run_command({"sh", "-c", "echo one; exit 3"}, 60s)->text, "one\n");
  EXPECT_FALSE(output_of({"/proc/nonexistent/program"}, 60s));
  EXPECT_FALSE(output_of({"sleep", "600"}, 20ms));
  EXPECT_FALSE(output_of({"sh", "-c", "exec >&- 2>&-; exec sleep 600"}, 20ms));
}

}  // namespace
}  // namespace farandole

#include "farandole/analyzer/what_if/scenario.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using ::testing::HasSubstr;

TEST(Scenario, CombinesConditions) {
  const auto scenario = parse_scenario(
      "bucket-mb=0.5,bandwidth=2x,ranks=8,no-straggler,no-checkpoint,"
      "delay=1@20,delay=0@0.5ms");
  EXPECT_EQ(scenario.bucket_mb, 0.5);
  EXPECT_EQ(scenario.bandwidth, 2);
  EXPECT_EQ(scenario.ranks, 8);
  EXPECT_TRUE(scenario.no_straggler);
  EXPECT_TRUE(scenario.no_checkpoint);
  ASSERT_EQ(scenario.delays.size(), 2U);
  EXPECT_EQ(scenario.delays[0].rank, 1);
  EXPECT_EQ(scenario.delays[0].ms, 20);
  EXPECT_EQ(scenario.delays[1].ms, 0.5);
  EXPECT_EQ(parse_scenario("bandwidth=0.25").bandwidth, 0.25);
}

TEST(Scenario, RefusesInOneLineWhatIsNone) {
  std::istringstream words(
      ", bucket-mb bucket-mb= bucket-mb=0 bucket-mb=-1 bucket-mb=4MB bucket-mb=nan bucket-mb=inf "
      "bandwidth=x bandwidth=0x bandwidth=2xx ranks=0 ranks=-2 ranks=2.5 ranks=99999999999999999999 "
      "compression=bfloat16 no-stragglers no-straggler=1 delay=1 delay=@5 delay=1@ delay=1@-5 delay=-1@5 "
      "delay=1@5s bucket-mb=4,,ranks=2 ranks=2, Ranks=2 \xff");
  std::vector<std::string> texts = {""};
  for (std::string word; words >> word;) texts.push_back(word);
  for (const auto& text : texts) {
    try {
      parse_scenario(text);
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr("--what-if"));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(HeldOutRun, MayCarryConditionsBehindAColon) {
  const TemporaryFolder folder;
  const auto run = (folder.path() / "a:b").string();
  std::ofstream(run) << "x";
  EXPECT_EQ(parse_held_out(run).path, run);
  EXPECT_EQ(parse_held_out(run).conditions.text, "");
  const std::string conditions = "ranks=4,delay=1@5";
  const auto held_out = parse_held_out(run + ":" + conditions);
  EXPECT_EQ(held_out.path, run);
  EXPECT_EQ(held_out.conditions.ranks, 4);
  EXPECT_EQ(held_out.conditions.text, conditions);
  EXPECT_EQ(parse_held_out("not/there:ranks=2").path, "not/there");
  EXPECT_THROW(parse_held_out("not/there:never"), UserError);
}

}  // namespace
}  // namespace farandole

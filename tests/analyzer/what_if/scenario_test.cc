#include "farandole/analyzer/what_if/scenario.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "lane.h"

#include "farandole/analyzer/what_if/bucket_layout.h"
#include "farandole/base/error.h"
#include "farandole/base/temporary_folder.h"
#include "farandole/fusion/bucket_plan.h"
#include "farandole/fusion/compression.h"

namespace farandole {
namespace {

using ::testing::HasSubstr;

TEST(Scenario, CombinesConditions) {
  const auto scenario = parse_scenario(
      "bucket-mb=0.5,bandwidth=2x,ranks=8,compression=powersgd:2,no-straggler,no-checkpoint,"
      "delay=1@20,delay=0@0.5ms");
  EXPECT_EQ(scenario.bucket_mb, 0.5);
  EXPECT_EQ(scenario.bandwidth, 2);
  EXPECT_EQ(scenario.ranks, 8);
  EXPECT_EQ(scenario.compression, "powersgd:2");
  EXPECT_TRUE(scenario.no_straggler);
  EXPECT_TRUE(scenario.no_checkpoint);
  ASSERT_EQ(scenario.delays.size(), 2U);
  EXPECT_EQ(scenario.delays[0].rank, 1);
  EXPECT_EQ(scenario.delays[0].ms, 20);
  EXPECT_EQ(scenario.delays[1].ms, 0.5);
  EXPECT_FALSE(scenario.as_it_was());
  EXPECT_TRUE(Scenario{}.as_it_was());
  EXPECT_EQ(parse_scenario("bandwidth=0.25").bandwidth, 0.25);
}

TEST(Scenario, RefusesInOneLineWhatIsNone) {
  for (const auto* text : {"",
                           ",",
                           "bucket-mb",
                           "bucket-mb=",
                           "bucket-mb=0",
                           "bucket-mb=-1",
                           "bucket-mb=4MB",
                           "bucket-mb=nan",
                           "bucket-mb=inf",
                           "bandwidth=x",
                           "bandwidth=0x",
                           "bandwidth=2xx",
                           "ranks=0",
                           "ranks=-2",
                           "ranks=2.5",
                           "ranks=99999999999999999999",
                           "compression=",
                           "compression=fp8",
                           "compression=none:1",
                           "compression=topk:2",
                           "compression=powersgd:0",
                           "no-stragglers",
                           "no-straggler=1",
                           "delay=1",
                           "delay=@5",
                           "delay=1@",
                           "delay=1@-5",
                           "delay=-1@5",
                           "delay=1@5s",
                           "bucket-mb=4,,ranks=2",
                           "ranks=2,",
                           "Ranks=2",
                           "\xff"}) {
    try {
      parse_scenario(text);
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr("--what-if"));
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(Scenario, KnowsTheCompressionsThatTheTrainerKnows) {
  for (const std::string text :
       {"none", "float16", "bfloat16", "powersgd", "powersgd:4", "powersgd:0", "powersgd:x", "topk",
        "topk:0.01", "topk:1", "topk:0", "topk:1.5", "topk:", "float16:2", "fp16", "bf16", ""}) {
    bool known = true, accepted = true;
    try {
      parse_compression(text);
    } catch (const UserError&) {
      known = false;
    }
    try {
      parse_scenario("compression=" + text);
    } catch (const UserError&) {
      accepted = false;
    }
    EXPECT_EQ(known, accepted) << text;
  }
}

TEST(HeldOutRun, MayCarryConditionsBehindAColon) {
  const TemporaryFolder folder;
  const auto run = (folder.path() / "a:b").string();
  std::ofstream(run) << "x";
  EXPECT_EQ(parse_held_out(run).path, run);
  EXPECT_TRUE(parse_held_out(run).conditions.as_it_was());
  const auto topk = parse_held_out(run + ":compression=topk:0.1,delay=1@5");
  EXPECT_EQ(topk.path, run);
  EXPECT_EQ(topk.conditions.compression, "topk:0.1");
  EXPECT_EQ(topk.conditions.text, "compression=topk:0.1,delay=1@5");
  EXPECT_EQ(parse_held_out("not/there:ranks=2").path, "not/there");
  EXPECT_THROW(parse_held_out("not/there:never"), UserError);
}

TEST(BucketLayout, CutsAsTheTrainerDoes) {
  std::mt19937 random(seed(7));
  for (int round = 0; round < 200; ++round) {
    std::vector<TensorSpec> tensors;
    std::vector<std::uint64_t> bytes;
    for (int i = static_cast<int>(1 + random() % 40); i > 0; --i) {
      const std::int64_t count = 1 + static_cast<std::int64_t>(random() % (random() % 2 ? 100 : 2'000'000));
      tensors.push_back({"t" + std::to_string(i), {count}, DType::float32});
      bytes.insert(bytes.begin(), static_cast<std::uint64_t>(count) * 4);  // plans begin at the end
    }
    BucketOptions options;
    options.bytes = 1 + random() % (8U << 20);
    options.first_bytes = std::min(options.bytes, options.first_bytes);
    const auto plan = plan_buckets(tensors, options);
    const auto layout = lay_out_buckets(bytes, options.bytes);
    ASSERT_EQ(layout.size(), plan.buckets.size());
    std::vector<std::uint64_t> sizes;
    std::vector<std::size_t> counts;
    for (std::size_t b = 0; b < layout.size(); ++b) {
      EXPECT_EQ(layout[b].gradients, plan.buckets[b].slots.size());
      EXPECT_EQ(layout[b].bytes, plan.buckets[b].count() * 4);
      sizes.push_back(layout[b].bytes);
      counts.push_back(layout[b].gradients);
    }
    EXPECT_EQ(fill_buckets(bytes, sizes), counts);
    sizes.back() += 4;
    EXPECT_TRUE(fill_buckets(bytes, sizes).empty());
  }
}

}  // namespace
}  // namespace farandole

#include "farandole/analyzer/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_folder.h"
#include "tools/large_run.h"

#include "farandole/analyzer/report.h"
#include "farandole/analyzer/report_csv.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LargeRun;

RunReport report_on(const LargeRun& run) {
  const TemporaryFolder folder;
  run.write(folder / "run", 5);
  return analyze_run(folder / "run");
}

const Difference& named(const Comparison& comparison, const std::string& name) {
  for (const auto& difference : comparison.differences)
    if (difference.name == name) return difference;
  throw Error("no difference " + name);
}

LargeRun noisy() {
  LargeRun run;
  run.steps = 100;
  run.noise_ns = 8'000'000;
  return run;
}

TEST(Comparison, finds_what_became_slower) {
  auto slower = noisy();
  slower.step.backward += 10'000'000;
  for (auto& bucket : slower.step.buckets) bucket.offset += 10'000'000;
  const auto before = report_on(noisy());
  const auto now = report_on(slower);
  const auto comparison = compare(now.metrics, before.metrics);
  EXPECT_EQ(named(comparison, "throughput").verdict, Change::worse);
  EXPECT_EQ(named(comparison, "step_ms").verdict, Change::worse);
  EXPECT_EQ(named(comparison, "backward_ms").verdict, Change::worse);
  EXPECT_NEAR(*named(comparison, "backward_ms").now.value - *named(comparison, "backward_ms").before.value,
              10, 1e-6);
  EXPECT_EQ(named(comparison, "forward_ms").verdict, Change::same);
  EXPECT_EQ(named(comparison, "optimizer_ms").verdict, Change::same);
  EXPECT_THAT(comparison.verdict, HasSubstr("Worse: throughput is"));
  EXPECT_THAT(comparison.verdict,
              HasSubstr("most of it is backward, which takes 50.00 instead of 40.00 ms a step"));
  EXPECT_THAT(compare(before.metrics, now.metrics).verdict, HasSubstr("Better: throughput is"));
  EXPECT_THAT(failures(parse_conditions("throughput<-5%, backward_ms>+20%"), now.metrics, &comparison),
              ElementsAre(HasSubstr("throughput<-5%: it changed by -"),
                          HasSubstr("backward_ms>+20%: it changed by +25.0 %")));
  EXPECT_THAT(failures(parse_conditions("throughput<-50%,backward_ms>60"), now.metrics, &comparison),
              IsEmpty());
}

// Of the same program twice: other noise, no difference.
TEST(Comparison, does_not_take_chance_for_a_difference) {
  std::size_t found = 0;
  std::size_t all = 0;
  const auto before = report_on(noisy());
  for (int seed = 1; seed <= 20; ++seed) {
    auto again = noisy();
    again.seed = seed;
    const auto now = report_on(again);
    const auto comparison = compare(now.metrics, before.metrics);
    for (const auto& difference : comparison.differences) found += difference.verdict == Change::same ? 0 : 1;
    all += comparison.differences.size();
  }
  EXPECT_LE(found, all / 4) << "of " << all;
}

TEST(Conditions, say_what_is_wrong_with_them) {
  EXPECT_THAT(parse_conditions(""), IsEmpty());
  for (const auto* wrong : {"throughput", "speed<5", "overlap<", "overlap<half", "overlap<5x%", "<5"})
    EXPECT_THROW(parse_conditions(wrong), UserError) << wrong;
  const auto report = report_on(LargeRun());
  EXPECT_THROW(failures(parse_conditions("throughput<-5%"), report.metrics, nullptr), UserError);
  LargeRun alone;
  alone.ranks = 1;
  alone.step.buckets.clear();
  EXPECT_THAT(failures(parse_conditions("overlap<0.5"), report_on(alone).metrics, nullptr),
              ElementsAre(HasSubstr("unknown: no communication")));
}

TEST(ReportCsv, quotes_what_must_be_quoted) {
  auto run = report_on(LargeRun());
  run.path = "a,\"b\"";
  const auto report = report_of({run});
  const auto csv = report_csv(report, "ranks");
  EXPECT_THAT(csv, HasSubstr("\r\n\"a,\"\"b\"\"\",0,node0,"));
  for (const auto* table : {"runs", "ranks", "phases", "steps", "lateness", "collectives", "losses",
                            "wait-causes", "critical-path", "stragglers", "findings", "scaling"}) {
    const auto text = report_csv(report, table);
    EXPECT_TRUE(text.ends_with("\r\n"));
    EXPECT_EQ(text.find("nan"), std::string::npos) << table;
  }
  EXPECT_THROW(report_csv(report, "nothing"), UserError);
}

}  // namespace
}  // namespace farandole

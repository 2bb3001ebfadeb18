// Horovod timelines of runs with its cache of responses, which is on by default.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/json_report.h"
#include "analyzer/trace_builder.h"

#include "farandole/analyzer/report/report.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

using namespace ::testing;

enum class Cached { with_negotiation, without, from_the_start };

// Two tensors, ten times each on four ranks, of which each is ready 1 ms behind the one before. Only the
// first operation of a tensor has the ready ranks.
std::string cached_timeline(Cached cached, bool reversed_keys = false) {
  auto events = nlohmann::ordered_json::array();
  const auto add = [&](nlohmann::ordered_json event) {
    if (reversed_keys) {
      auto reversed = nlohmann::ordered_json::object();
      for (auto member = event.rbegin(); member != event.rend(); ++member)
        reversed[member.key()] = member.value();
      event = reversed;
    }
    events.push_back(event);
  };
  const auto name = [](int pid) { return "grad_" + std::to_string(pid); };
  for (int pid = 1; pid <= 2; ++pid)
    add({{"name", "process_name"}, {"ph", "M"}, {"pid", pid}, {"args", {{"name", name(pid)}}}});
  for (int step = 0; step < 10; ++step)
    for (int pid = 1; pid <= 2; ++pid) {
      const int t = step * 100'000 + pid * 20'000 + 1'000;
      const auto begin = [&](const char* what, int at) {
        add({{"ph", "B"}, {"name", what}, {"ts", t + at}, {"pid", pid}});
      };
      const auto end = [&](int at) { add({{"ph", "E"}, {"ts", t + at}, {"pid", pid}}); };
      const bool is_ready = step == 0 && cached != Cached::from_the_start;
      if (is_ready || cached == Cached::with_negotiation) {
        begin("NEGOTIATE_ALLREDUCE", 0);
        for (int rank = 0; rank < 4 && is_ready; ++rank)
          add({{"ph", "X"},
               {"name", std::to_string(rank)},
               {"ts", t + 1'000 * rank},
               {"pid", pid},
               {"dur", 0}});
        end(3'000);
      }
      begin("ALLREDUCE", 3'100);
      begin("NCCL_ALLREDUCE", 3'400);
      end(13'400);
      end(13'700);
    }
  return events.dump(1);
}

auto analyzed(const std::string& text) {
  const TemporaryFolder folder;
  testing::write_text(folder / "timeline.json", text);
  auto run = analyze_run(folder / "timeline.json");
  testing::json_of_run(run);
  return run;
}

TEST(HorovodCache, CountsOperationsWithoutReadyRanks) {
  for (const auto cached : {Cached::with_negotiation, Cached::without})
    for (const bool reversed : {false, true}) {
      const auto run = analyzed(cached_timeline(cached, reversed));
      EXPECT_THAT(run.verdict, HasSubstr("in 100.0 % of 1 call of grad_1 with known arrivals"));
      const auto& metrics = run.metrics;
      ASSERT_THAT(metrics.ranks, SizeIs(4));
      ASSERT_THAT(metrics.collectives, SizeIs(2));
      for (const auto& row : metrics.collectives) {
        EXPECT_EQ(row.count, 10U);
        EXPECT_EQ(row.operation, "allreduce");
        EXPECT_DOUBLE_EQ(row.transfer_us, 10'000);
        EXPECT_DOUBLE_EQ(row.wait_us.value.value_or(-1), 1'500);
        EXPECT_EQ(row.last_rank, 3);
        EXPECT_DOUBLE_EQ(row.last_share.value.value_or(-1), 1);
      }
      EXPECT_EQ(metrics.window.length(), 933'000'000);
      EXPECT_NEAR(metrics.fraction(&RankMetrics::transfer).value.value_or(-1), 0.2 / 0.933, 1e-9);
      EXPECT_THAT(metrics.warnings, Contains(HasSubstr("18 operations have no ready ranks")));
      EXPECT_THAT(metrics.warnings, Contains(HasSubstr("HOROVOD_CACHE_CAPACITY=0")));
    }
}

// A timeline that begins in the middle of the run has no ready ranks at all.
TEST(HorovodCache, WithoutAnyReadyRankKnowsTheTransfersOnly) {
  const auto metrics = analyzed(cached_timeline(Cached::from_the_start)).metrics;
  ASSERT_THAT(metrics.collectives, SizeIs(2));
  EXPECT_EQ(metrics.collectives[0].count, 10U);
  EXPECT_DOUBLE_EQ(metrics.collectives[0].transfer_us, 10'000);
  EXPECT_FALSE(metrics.collectives[0].wait_us.value);
  EXPECT_THAT(metrics.warnings, Contains(HasSubstr("so is the number of ranks")));
}

}  // namespace
}  // namespace farandole

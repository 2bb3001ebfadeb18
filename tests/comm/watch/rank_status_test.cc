#include "farandole/comm/watch/rank_status.h"

#include <gmock/gmock.h>

namespace farandole {
namespace {

using namespace ::testing;
using Life = farandole::Life;

constexpr std::int64_t second = 1'000'000'000;

CallStatus call(std::uint32_t communicator, std::uint32_t sequence, bool in_flight,
                const char* name = "bucket 0", const char* operation = "allreduce") {
  CallStatus status;
  status.key = {communicator, sequence};
  status.entered = sequence + 1;
  status.in_flight = in_flight ? 1 : 0;
  status.waited_ns = in_flight ? 61 * second : 0;
  store_text(status.name, name);
  store_text(status.operation, operation);
  return status;
}

RankStatus rank(int number, std::initializer_list<CallStatus> calls, Life life = Life::running) {
  RankStatus status{.rank = number, .pid = 4711 + number, .life = life};
  for (const auto& one : calls) status.calls[status.calls_used++] = one;
  return status;
}

RankStatus in_span(RankStatus status, Category category, const char* name) {
  status.in_span = true;
  status.category = category;
  status.span_ns = 60 * second;
  store_text(status.span, name);
  return status;
}

StallSummary summary_of(std::vector<RankStatus> statuses) {
  const std::vector<std::string> hosts(statuses.size(), "node1");
  auto summary = summarize_stall(statuses, hosts, [](const CallKey&) { return std::nullopt; });
  EXPECT_TRUE(summary);
  return summary.value_or(StallSummary());
}

TEST(StallText, NamesARankStuckInDataLoading) {
  const auto summary = summary_of({rank(0, {call(1, 17, true)}),
                                   in_span(rank(1, {call(1, 16, false)}), Category::data, "load a batch"),
                                   rank(2, {call(1, 17, true)}), rank(3, {call(1, 17, true)})});
  EXPECT_THAT(summary.call.waiting, ElementsAre(0, 2, 3));
  EXPECT_THAT(summary.call.missing, ElementsAre(1));
  EXPECT_EQ(
      summary.text,
      "stall: ranks 0, 2, 3 have waited 61 s in allreduce #17 'bucket 0'\n"
      "  rank 1 (pid 4712 on node1) is missing: it is stuck in data loading (data 'load a batch' for 60 s)");
}

RankStatus at(RankStatus status, const char* place) {
  store_text(status.place, place);
  return status;
}

TEST(StallText, NamesTheLineOfPython) {
  const auto in_load = [](const char* name) {
    return summary_of(
               {rank(0, {call(1, 17, true)}),
                at(in_span(rank(1, {call(1, 16, false)}), Category::data, name), "loader.py:118 in fetch")})
        .text;
  };
  EXPECT_THAT(in_load("data"), HasSubstr("it is stuck in data loading, loader.py:118 in fetch, for 60 s"));
  EXPECT_THAT(in_load("train set"),
              HasSubstr("data loading, loader.py:118 in fetch (data 'train set' for 60 s)"));
  EXPECT_THAT(
      summary_of({rank(0, {call(1, 1, true)}), at(rank(1, {call(1, 0, false)}), "train.py:9 in main")}).text,
      HasSubstr("it is in the program's own code, outside of any phase, train.py:9 in main"));
  EXPECT_EQ(describe_activity(at(rank(0, {call(1, 17, true)}), "train.py:9 in main")),
            "is in allreduce #17 'bucket 0' for 61 s at train.py:9 in main");
}

TEST(StallText, NamesDifferentCollectives) {
  EXPECT_EQ(describe_call(call(1, 4, true, "broadcast", "broadcast")), "broadcast #4");
  auto sized = call(1, 4, true, "");
  sized.bytes = 256;
  auto larger = sized;
  larger.bytes = 512;
  EXPECT_EQ(
      summary_of({at(rank(0, {call(1, 4, true, "", "broadcast")}), "train.py:9 in main"),
                  rank(1, {call(1, 4, true, "")}), rank(2, {call(1, 4, true, "")})})
          .text,
      "stall: ranks 0-2 have waited 61 s in broadcast #4\n"
      "  the ranks call different collectives: rank 0 broadcast #4 at train.py:9 in main, ranks 1, 2 allreduce "
      "#4; let all ranks call the same collectives in the same order");
  EXPECT_THAT(summary_of({rank(0, {sized}), rank(1, {larger})}).text,
              HasSubstr("rank 0 allreduce #4 of 256 bytes, rank 1 allreduce #4 of 512 bytes"));
  EXPECT_THAT(summary_of({rank(0, {sized}), rank(1, {sized})}).text, HasSubstr("no rank is missing"));
}

TEST(StallText, EveryPhaseHasItsName) {
  const std::pair<Category, const char*> phases[] = {{Category::checkpoint, "stuck in a checkpoint"},
                                                     {Category::evaluation, "stuck in the evaluation"},
                                                     {Category::backward, "still computing (backward"}};
  for (const auto& [category, text] : phases)
    EXPECT_THAT(
        summary_of({rank(0, {call(1, 1, true)}), in_span(rank(1, {call(1, 0, false)}), category, "x")}).text,
        HasSubstr(text));
  EXPECT_THAT(summary_of({rank(0, {call(1, 1, true)}), rank(1, {call(1, 0, false)})}).text,
              HasSubstr("outside of any phase"));
}

TEST(StallText, NamesTheRootCauseBeforeItsVictims) {
  EXPECT_EQ(
      summary_of({rank(0, {call(0, 9, true, "stop", "broadcast"), call(1, 16, false)}),
                  rank(1, {call(0, 8, false), call(1, 16, false)}, Life::stopped),
                  rank(2, {call(0, 9, false), call(1, 17, true)}),
                  rank(3, {call(0, 9, false), call(1, 17, true)})})
          .text,
      "stall: ranks 2, 3 have waited 61 s in allreduce #17 'bucket 0'\n"
      "  rank 1 (pid 4712 on node1) is missing: it is stopped (state T); kill -CONT 4712 resumes it; it is "
      "in the program's own code, outside of any phase\n"
      "  rank 0 (pid 4711 on node1) is missing, but waits itself: it is in broadcast #9 'stop' for 61 s");
}

TEST(StallText, TellsRanksThatDoNotAnswerFromThoseThatEnded) {
  const auto summary = summary_of({rank(0, {call(1, 17, true)}), rank(1, {}, Life::unknown),
                                   rank(2, {}, Life::leaving), rank(3, {call(1, 3, false)}, Life::ended)});
  EXPECT_THAT(summary.call.missing, ElementsAre(1, 2, 3));
  EXPECT_THAT(summary.text, HasSubstr("it does not answer"));
  EXPECT_THAT(summary.text, HasSubstr("it has already ended its session"));
  EXPECT_THAT(summary.text, HasSubstr("it has ended"));
}

TEST(StallText, SaysIfNoRankIsMissing) {
  EXPECT_THAT(summary_of({rank(0, {call(2, 5, true)}), rank(1, {call(1, 17, false)})}).text,
              HasSubstr("no rank is missing"));
  const std::vector<RankStatus> statuses = {rank(0, {call(1, 1, false)}), rank(1, {})};
  EXPECT_FALSE(summarize_stall(statuses, {"a", "b"}, [](const CallKey&) { return std::nullopt; }));
}

TEST(StallText, StaysReadableWithManyRanks) {
  std::vector<RankStatus> statuses;
  for (int r = 0; r < 1024; ++r) statuses.push_back(rank(r, {call(1, 17, r % 2 == 0)}));
  for (int r = 1; r < 1024; r += 2) statuses[static_cast<std::size_t>(r)].calls[0] = call(1, 16, false);
  const auto text = summary_of(statuses).text;
  EXPECT_LT(text.size(), 6000u);
  EXPECT_THAT(text, HasSubstr("ranks 0, 2, 4"));
  EXPECT_THAT(text, HasSubstr("more"));
}

TEST(StallText, OwnReport) {
  OwnReport report{.status = in_span(rank(1, {call(1, 16, false)}), Category::data, "load"),
                   .host = "node1",
                   .missed_in = CallKey{1, 17}};
  store_text(report.status.detail, "not produced yet: fc1.bias");
  report.thread.emplace();
  report.thread->stack = {"read+0x1 in libc.so.6", "main+0x2 in train"};
  EXPECT_EQ(
      own_report(report),
      "keeps other ranks waiting: it is stuck in data loading (data 'load' for 60 s); pid 4712 on node1; "
      "not produced yet: fc1.bias\n"
      "  the training thread's stack:\n    read+0x1 in libc.so.6\n    main+0x2 in train");
  report.thread->place = "loader.py:118 in fetch";
  EXPECT_THAT(own_report(report),
              HasSubstr("\n  the training thread is at loader.py:118 in fetch; its stack:\n    read"));
  report.status = in_span(rank(1, {call(1, 17, true)}), Category::wait, "wait for gradients");
  report.missed_in.reset();
  report.meaning = CollectiveRegistry::Meaning{{"a", "b"}, {}};
  report.thread.reset();
  const auto text = own_report(report);
  EXPECT_THAT(text, HasSubstr("is stalled: it is in allreduce #17 'bucket 0' for 61 s; pid 4712 on node1"));
  EXPECT_THAT(text, HasSubstr("it contains: a, b"));
  EXPECT_THAT(text, HasSubstr("the training thread does not answer"));
  EXPECT_THAT(text, Not(HasSubstr("stack")));
}

}  // namespace
}  // namespace farandole

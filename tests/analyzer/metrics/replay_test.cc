#include "farandole/analyzer/metrics/replay.h"

#include <gtest/gtest.h>
#include <random>

#include "lane.h"

namespace farandole {
namespace {

using Kind = ReplayOperation::Kind;
using Operations = std::vector<ReplayOperation>;
constexpr double one_ms = 1e6;

ReplayOperation work(double length_ms) {
  return {.kind = Kind::work, .ns = length_ms * one_ms};
}
// By a thread beside the training thread: it begins with the rank's collective `after` behind it.
ReplayOperation enter(std::uint32_t index, double length_ms, std::uint32_t after = ReplayOperation::nothing) {
  return {.kind = Kind::enter, .index = index, .ns = length_ms * one_ms, .after = after, .wakes = true};
}
ReplayOperation await(std::uint32_t own) {
  return {.kind = Kind::await, .index = own};
}
// By the training thread.
ReplayOperation push(std::uint32_t index, double part_ms) {
  return {.kind = Kind::push, .index = index, .ns = part_ms * one_ms};
}
ReplayOperation finish(std::uint32_t own) {
  return {.kind = Kind::finish, .index = own};
}
constexpr ReplayOperation poll{.kind = Kind::poll};

// All ranks enter all collectives, and reach a mark at their ends.
class Programs : public ReplayProgram {
 public:
  explicit Programs(std::vector<Operations> ranks) : ranks_(std::move(ranks)) {
    for (auto& rank : ranks_) rank.push_back({.kind = Kind::mark});
  }
  std::size_t ranks() const override { return ranks_.size(); }
  std::size_t members(std::size_t) const override { return ranks_.size(); }
  void append(std::size_t rank, Operations& into) override { into = std::exchange(ranks_[rank], {}); }

 private:
  std::vector<Operations> ranks_;
};

double length_ms(std::vector<Operations> ranks, double wake_ms = 0) {
  Programs programs(std::move(ranks));
  const auto marks = replay(programs, wake_ms * one_ms);
  EXPECT_EQ(marks.size(), 1U);
  return marks.empty() ? 0 : marks[0].last / one_ms;
}

struct Case {
  const char* what;
  std::vector<Operations> ranks;
  double expected_ms;
  double wake_ms = 0;
};

TEST(Replay, FollowsTheRanksDependencies) {
  const Operations early = {work(1), push(0, 1), poll, work(3), poll, finish(0)};
  const Operations late = {work(2), push(0, 1), poll, finish(0), work(10)};
  for (
      const auto& [what, ranks, expected_ms, wake_ms] : std::vector<Case>{
          {"one rank only works", {{work(3), work(4)}}, 7},
          {"a collective ends behind its last rank",
           {{work(1), enter(0, 2), await(0), work(1)}, {work(4), enter(0, 2), await(0)}},
           4 + 2 + 1},
          {"a rank that was not the last wakes up later",
           {{work(1), enter(0, 2), await(0), work(1)}, {work(4), enter(0, 2), await(0)}},
           4 + 2 + 0.5 + 1,
           0.5},
          {"work hides a collective that a thread beside it runs",
           {{enter(0, 2), work(5), await(0)}, {enter(0, 2), work(5), await(0)}},
           5},
          {"a collective waits for the one before it",
           {{work(1), enter(0, 5), work(1), enter(1, 2, 0), work(1), await(1)},
            {work(1), enter(0, 5), work(1), enter(1, 2, 0), work(1), await(1)}},
           1 + 5 + 2},
          {"a rank that leaves early does not wait for the last one",
           {{{.kind = Kind::enter, .ns = one_ms, .leaves_early = true}, await(0), work(2)},
            {work(7), enter(0, 0), await(0)}},
           7},
          {"a rank enters later than it could",
           {{{.kind = Kind::enter, .ns = one_ms, .delay_ns = 4 * one_ms}, await(0)}, {enter(0, 1), await(0)}},
           4 + 1},
          {"training threads do their parts when they wait",
           // Rank 1 arrives at 5 and does its part. Rank 0 wakes up and does its part, for which
           // rank 1 waits.
           {{work(2), push(0, 1), poll, finish(0), work(1)}, {work(5), push(0, 1), poll, finish(0), work(1)}},
           5 + 0.5 + 1 + 0.5 + 1,
           0.5},
          // Rank 0 arrives at 1 and rank 1 at 2. Rank 0 polls again only at 4, and rank 1 waits for its part.
          {"training threads continue only when they poll", {early, late}, 4 + 1 + 10}})
    EXPECT_NEAR(length_ms(ranks, wake_ms), expected_ms, 1e-6) << what;
}

// For any programs, all ranks reach their ends, and none before its own work is done.
TEST(Replay, AlwaysComesToItsEnd) {
  std::mt19937 random(seed(11));
  const auto some = [&](int most) {
    return static_cast<double>(random() % static_cast<unsigned>(most)) / 100;
  };
  for (int round = 0; round < 300; ++round) {
    const bool by_training = random() % 2 == 0, meets = random() % 2 == 0;
    const std::size_t ranks = 1 + random() % 5;
    const auto buckets = static_cast<std::uint32_t>(random() % 5);
    const double wake_ms = some(10), part_ms = some(300);
    std::vector<Operations> programs;
    double longest = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      auto& program = programs.emplace_back();
      double own = 0;
      const auto add = [&](double length) {
        program.push_back(work(length));
        own += length;
      };
      for (std::uint32_t step = 0, entered = 0; step < 3; ++step) {
        const auto first = step * (buckets + 1);
        add(some(1000));
        if (meets) {
          program.push_back(enter(first + buckets, some(100)));
          program.push_back(await(entered++));
        }
        for (std::uint32_t b = 0; b < buckets; ++b) {
          add(some(300));
          if (random() % 2) program.push_back(poll);
          const auto after = b > 0 ? entered + b - 1 : ReplayOperation::nothing;
          program.push_back(by_training ? push(first + b, part_ms) : enter(first + b, part_ms, after));
          if (random() % 2) program.push_back(poll);
        }
        for (std::uint32_t b = 0; b < buckets; ++b) {
          program.push_back(by_training ? finish(entered++) : await(entered++));
          add(some(100));
        }
      }
      longest = std::max(longest, own);
    }
    EXPECT_GE(length_ms(programs, wake_ms), longest - 1e-6);
  }
}

}  // namespace
}  // namespace farandole

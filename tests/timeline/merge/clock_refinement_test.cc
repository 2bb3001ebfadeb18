#include "farandole/timeline/merge/clock_refinement.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace farandole {
namespace {

constexpr std::int64_t run_ns = 120'000'000'000;

// A synthetic run. The clocks differ from rank 0's by up to 1 s and drift by up to 50 ppm.
struct World {
  struct Rank {
    std::int64_t offset_ns = 0;
    double drift = 0;
    std::vector<RoundTrip> trips;
    std::vector<Meeting> meetings;
    ClockModel model;
    std::int64_t local(std::int64_t true_ns) const {
      return true_ns + offset_ns + std::llround(drift * static_cast<double>(true_ns));
    }
  };
  std::vector<Rank> ranks;
  std::mt19937_64 random;

  // A message takes about `latency_ns`, different in both directions. Collectives take at
  // least about as long.
  World(unsigned seed, std::size_t size, std::int64_t latency_ns, int collectives)
      : ranks(size), random(seed) {
    for (std::size_t i = 1; i < size; ++i) {
      ranks[i].offset_ns = between(-1'000'000'000, 1'000'000'000);
      ranks[i].drift = static_cast<double>(between(-50'000, 50'000)) * 1e-9;
      for (const std::int64_t burst : {std::int64_t{0}, run_ns})
        for (int trip = 0; trip < 30; ++trip) {
          const std::int64_t sent = burst + trip * 1'000'000;
          const std::int64_t there = sent + latency_ns + between(0, latency_ns);
          const std::int64_t back = there + latency_ns + between(0, latency_ns);
          ranks[i].trips.push_back({ranks[i].local(sent), there, ranks[i].local(back)});
        }
      ranks[i].model = ClockModel::fit(ranks[i].trips);
    }
    for (int collective = 0; collective < collectives; ++collective) {
      const std::int64_t at = run_ns * collective / collectives;
      std::vector<std::int64_t> arrivals(size);
      for (auto& arrival : arrivals) arrival = at + between(0, 300'000);
      const std::int64_t last = *std::max_element(arrivals.begin(), arrivals.end());
      for (std::size_t i = 0; i < size; ++i)
        ranks[i].meetings.push_back({static_cast<std::uint64_t>(collective), ranks[i].local(arrivals[i]),
                                     ranks[i].local(last + between(0, latency_ns))});
    }
  }

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  }
  std::vector<RankClock> clocks() const {
    std::vector<RankClock> result;
    for (const Rank& rank : ranks) result.push_back({rank.model, true, rank.meetings});
    return result;
  }
};

TEST(ClockRefinement, NobodyLeavesBeforeTheLastHasCome) {
  int were_broken = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    const World world(seed, 2 + seed % 5, 3'000 + seed % 3 * 10'000, 400);
    auto clocks = world.clocks();
    for (const Meeting& meeting : world.ranks[1].meetings)
      were_broken +=
          world.ranks[1].model.to_reference(meeting.end_ns) < world.ranks[0].meetings[meeting.key].start_ns;
    EXPECT_EQ(refine_clocks(clocks), 0u) << "seed " << seed;
    EXPECT_EQ(clocks[0].model.residual_ns(), 0);
    EXPECT_EQ(clocks[0].model.to_reference(12345), 12345);
    for (std::size_t i = 1; i < world.ranks.size(); ++i) {
      const World::Rank& rank = world.ranks[i];
      EXPECT_LE(clocks[i].model.residual_ns(), 2 * rank.model.residual_ns() + 1);
      for (std::int64_t true_ns = 0; true_ns <= run_ns; true_ns += run_ns / 10) {
        const std::int64_t error = clocks[i].model.to_reference(rank.local(true_ns)) - true_ns;
        EXPECT_LE(std::abs(error), clocks[i].model.residual_ns() + 1) << "seed " << seed << " rank " << i;
      }
    }
  }
  EXPECT_GT(were_broken, 0) << "the test needs violations to correct";
}

// Two collectives within 0.1 ms at the start of a run say nothing about the drift of the next hour.
TEST(ClockRefinement, CloseCollectivesDoNotBendTheClock) {
  for (const std::int64_t apart_ns : {0, 20'000, 100'000, 10'000'000}) {
    constexpr std::int64_t at_ns = 1'000'000'000'000, wrong_ns = 15'000;
    const RoundTrip trip{at_ns - 40'000, at_ns - 20'000 + wrong_ns, at_ns};
    const std::vector<Meeting> of_rank_0 = {{1, at_ns, at_ns + 8'000},
                                            {2, at_ns + apart_ns, at_ns + apart_ns + 13'000}};
    std::vector<Meeting> of_rank_1 = of_rank_0;
    for (Meeting& meeting : of_rank_1) meeting.start_ns += 500, meeting.end_ns += 500;
    std::vector<RankClock> clocks = {{ClockModel(), true, of_rank_0},
                                     {ClockModel::fit(std::span(&trip, 1)), true, of_rank_1}};
    EXPECT_EQ(refine_clocks(clocks), 0u);
    const ClockModel& refined = clocks[1].model;
    std::int64_t before = INT64_MIN;
    for (const std::int64_t later_ns :
         {-3'600'000'000'000L, 0L, 10'000L, 20'000L, 100'000L, 1'000'000L, 3'600'000'000'000L}) {
      const std::int64_t shown = refined.to_reference(at_ns + later_ns);
      EXPECT_LE(std::abs(shown - (at_ns + later_ns)), refined.residual_ns()) << apart_ns << " " << later_ns;
      EXPECT_GT(shown, before);
      before = shown;
    }
  }
}

TEST(ClockRefinement, FindsAnUnknownClockFromCollectives) {
  World world(7, 3, 5'000, 200);
  world.ranks[2].drift = 0;
  world.ranks[2].meetings.clear();
  for (const Meeting& meeting : world.ranks[0].meetings)
    world.ranks[2].meetings.push_back({meeting.key, meeting.start_ns + world.ranks[2].offset_ns + 1'000,
                                       meeting.end_ns + world.ranks[2].offset_ns + 1'000});
  auto clocks = world.clocks();
  clocks[2] = {ClockModel(), false, world.ranks[2].meetings};
  EXPECT_EQ(refine_clocks(clocks), 0u);
  EXPECT_TRUE(clocks[2].known);
  EXPECT_LE(clocks[2].model.residual_ns(), 200'000);
  const std::int64_t error =
      clocks[2].model.to_reference(5'000'000'000) - (5'000'000'000 - world.ranks[2].offset_ns - 1'000);
  EXPECT_LE(std::abs(error), clocks[2].model.residual_ns());
}

TEST(ClockRefinement, DoesNotBlameTheClockForACollectiveThatFailed) {
  World world(3, 2, 5'000, 50);
  Meeting& failed = world.ranks[1].meetings.back();
  failed.end_ns = failed.start_ns - 50'000'000;
  auto clocks = world.clocks();
  EXPECT_EQ(refine_clocks(clocks), 1u);
  EXPECT_LE(clocks[1].model.residual_ns(), 2 * world.ranks[1].model.residual_ns() + 1);
}

// With so many ranks there would be 26 million pairs of visits, which would need 2.5 GB of memory.
TEST(ClockRefinement, TakesManyRanksWhoseClocksAreUncertain) {
  const World world(11, 512, 200'000, 100);
  auto clocks = world.clocks();
  EXPECT_EQ(refine_clocks(clocks), 0u);
}

TEST(ClockRefinement, LeavesClocksThatNothingBounds) {
  std::vector<RankClock> apart(2);
  apart[1].known = false;
  EXPECT_EQ(refine_clocks(apart), 0u);
  EXPECT_FALSE(apart[1].known);
  EXPECT_EQ(apart[1].model.to_reference(7), 7);
  EXPECT_EQ(refine_clocks({}), 0u);
}

}  // namespace
}  // namespace farandole

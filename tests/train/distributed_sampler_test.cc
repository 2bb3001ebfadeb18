// Compares the sampler with PyTorch's DistributedSampler, and checks the rules of sharding.
#include "farandole/train/distributed_sampler.h"

#include <algorithm>
#include <array>
#include <gmock/gmock.h>
#include <iterator>
#include <random>
#include <set>
#include <zlib.h>

#include "trainer/data_fixtures.h"

namespace farandole {
namespace {

using testing::HasSubstr;
using Shares = std::vector<std::vector<std::int64_t>>;

Shares shares_of(std::int64_t size, int world, SamplerOptions options, std::int64_t epoch) {
  Shares shares;
  for (int rank = 0; rank < world; ++rank) {
    DistributedSampler sampler(size, rank, world, options);
    sampler.set_epoch(epoch);
    shares.push_back(sampler.indices());
    EXPECT_EQ(sampler.size(), static_cast<std::int64_t>(shares.back().size()));
  }
  return shares;
}

std::uint32_t crc_of_shares(std::int64_t size, int world, SamplerOptions options, std::int64_t epoch) {
  uLong crc = 0;
  for (const auto& share : shares_of(size, world, options, epoch))
    crc = crc32(crc, reinterpret_cast<const Bytef*>(share.data()), static_cast<uInt>(8 * share.size()));
  return static_cast<std::uint32_t>(crc);
}

TEST(DistributedSampler, DealsWhatPyTorchDeals) {
  struct {
    std::int64_t size;
    int world;
    bool drop_last;
    std::array<std::uint32_t, 4> crcs;
  } const cases[] = {
#define FARANDOLE_SMALL_SAMPLERS
#include "train/distributed_sampler_reference.inc"
#undef FARANDOLE_SMALL_SAMPLERS
  };
  EXPECT_GT(std::size(cases), 40U);
  for (const auto& [size, world, drop_last, crcs] : cases) {
    const auto crc = [size = size, world = world, drop_last = drop_last](bool shuffle, std::uint64_t seed,
                                                                         std::int64_t epoch) {
      return crc_of_shares(size, world, {shuffle, drop_last, seed}, epoch);
    };
    EXPECT_THAT(crcs,
                testing::ElementsAre(crc(false, 0, 0), crc(true, 0, 0), crc(true, 0, 1), crc(true, 42, 3)))
        << size << " samples, " << world << " ranks";
  }
}

TEST(DistributedSampler, DealsWhatPyTorchDealsOfLargeSets) {
  struct {
    std::int64_t size;
    int world;
    bool shuffle, drop_last;
    std::uint64_t seed;
    std::int64_t epoch;
    std::uint32_t crc;
  } const cases[] = {
#include "train/distributed_sampler_reference.inc"
  };
  EXPECT_EQ(std::size(cases), 8U);
  for (const auto& c : cases)
    EXPECT_EQ(crc_of_shares(c.size, c.world, {c.shuffle, c.drop_last, c.seed}, c.epoch), c.crc)
        << c.size << " samples, " << c.world << " ranks";
}

TEST(DistributedSampler, CoversEverySampleEvenly) {
  for (std::int64_t size = 1; size < 40; ++size) {
    for (int world = 1; world < 12; ++world) {
      const auto shares = shares_of(size, world, {}, 5);
      std::vector<int> times(static_cast<std::size_t>(size));
      for (const auto& share : shares) {
        ASSERT_EQ(share.size(), shares[0].size());
        for (const auto index : share) ++times.at(static_cast<std::size_t>(index));
      }
      const auto [least, most] = std::minmax_element(times.begin(), times.end());
      EXPECT_GE(*least, 1);
      EXPECT_LE(*most - *least, 1);
    }
  }
}

TEST(DistributedSampler, DropsLessThanOneRoundAndRepeatsNothing) {
  for (std::int64_t size = 7; size < 60; ++size) {
    std::set<std::int64_t> seen;
    for (const auto& share : shares_of(size, 7, {.drop_last = true}, 2))
      seen.insert(share.begin(), share.end());
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), size / 7 * 7);
  }
}

TEST(DistributedSampler, ShufflesAnewEachEpochAndTheSameAgain) {
  DistributedSampler sampler(1000, 0, 2);
  const auto first = sampler.indices();
  EXPECT_EQ(sampler.epoch(), 0);
  sampler.set_epoch(1);
  const auto second = sampler.indices();
  EXPECT_NE(first, second);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.indices(), first);
  DistributedSampler seeded(1000, 0, 2, {.seed = 1});  // PyTorch: seed + epoch
  EXPECT_EQ(seeded.indices(), second);
}

TEST(DistributedSampler, ContinuesAnEpochOnOtherRanks) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    const std::int64_t size = std::uniform_int_distribution(1, 200)(random);
    const std::int64_t epoch = std::uniform_int_distribution(0, 3)(random);
    std::vector<int> times(static_cast<std::size_t>(size));
    // Each part of the epoch has its own number of ranks, and ends after some steps or with the epoch.
    for (std::int64_t seen = 0; seen < size;) {
      const int world = std::uniform_int_distribution(1, 7)(random);
      const std::int64_t steps = std::uniform_int_distribution(1, 60)(random);
      for (int rank = 0; rank < world; ++rank) {
        DistributedSampler sampler(size, rank, world, {.seed = 3});
        sampler.set_position(epoch, seen);
        auto own = sampler.indices();
        ASSERT_EQ(static_cast<std::int64_t>(own.size()), sampler.size());
        ASSERT_LT(sampler.repeating_ranks(), world);
        if (rank >= world - sampler.repeating_ranks()) own.pop_back();
        if (static_cast<std::int64_t>(own.size()) > steps) own.resize(static_cast<std::size_t>(steps));
        for (const auto index : own) ++times.at(static_cast<std::size_t>(index));
      }
      seen = std::min(size, seen + steps * world);
    }
    ASSERT_THAT(times, testing::Each(1)) << size << " samples";
  }
}

TEST(DistributedSampler, TakesRankAndSizeFromASession) {
  struct {
    int rank() const { return 1; }
    int size() const { return 3; }
  } session;
  EXPECT_EQ(DistributedSampler(7, session, {.shuffle = false}).indices(),
            (std::vector<std::int64_t>{1, 4, 0}));
}

TEST(DistributedSampler, RefusesWhatCannotBeDealt) {
  EXPECT_THAT(message_of<UserError>([] { DistributedSampler(0, 0, 1); }), HasSubstr("empty"));
  EXPECT_THAT(message_of<UserError>([] { DistributedSampler(3, 0, 4, {.drop_last = true}); }),
              HasSubstr("3 samples cannot be distributed over 4 ranks"));
  EXPECT_THAT(message_of<UserError>([] { DistributedSampler(3, 4, 4); }), HasSubstr("rank 4"));
  EXPECT_THAT(message_of<UserError>([] { DistributedSampler(3, -1, 4); }), HasSubstr("rank -1"));
  EXPECT_THAT(message_of<UserError>([] { DistributedSampler(3, 0, 0); }), HasSubstr("rank 0 of 0"));
  EXPECT_EQ(DistributedSampler(3, 3, 4).indices().size(), 1U);
  EXPECT_THAT(message_of<UserError>([] { DistributedSampler(3, 0, 2).set_position(0, 4); }),
              HasSubstr("after sample 4 of 3"));
}

}  // namespace
}  // namespace farandole

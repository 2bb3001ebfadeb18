// Batches of all ranks, some of them fetched ahead: each sample of an epoch is given once, also if the ranks
// stop and other ranks go on.
#include "farandole/trainer/data/batch_sequence.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <random>

#include "lane.h"

#include "farandole/trainer/data/labelled_samples.h"

namespace farandole {
namespace {

// Counts what is fetched. The label of a sample is its number.
class Counted final : public Dataset {
 public:
  explicit Counted(std::int64_t size)
      : samples_(torch::arange(size).to(torch::kFloat32), torch::arange(size)) {}
  std::int64_t size() const override { return samples_.size(); }
  Batch get(std::span<const std::int64_t> indices) const override {
    ++fetched;
    return samples_.get(indices);
  }
  mutable int fetched = 0;

 private:
  LabelledSamples samples_;
};

struct Ranks {
  Ranks(std::int64_t samples, std::uint64_t order) : data(samples), order_seed(order) {}

  BatchSequence rank(int rank, int ranks, std::int64_t seen, std::int64_t batch) {
    DistributedSampler sampler(data.size(), rank, ranks, {.seed = order_seed});
    sampler.set_position(2, seen);
    return {data, sampler, batch, input, timeline};
  }

  const Counted data;
  const std::uint64_t order_seed;
  DeviceInput input{torch::kCPU};
  Timeline timeline;
};

TEST(BatchSequence, GivesEachSampleOnceAlsoAfterStops) {
  const auto first = seed(11);
  std::mt19937 random(first);
  const auto up_to = [&](int most) { return static_cast<int>(1 + random() % static_cast<unsigned>(most)); };
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << first << ", round " << round);
    Ranks run(up_to(90), random());
    std::vector<double> shares(
        static_cast<std::size_t>(run.data.size()));  // Of each sample in its global batch.
    for (std::int64_t seen = 0; seen < run.data.size();) {
      const int ranks = up_to(5), batch = up_to(9), steps = up_to(6);
      std::vector<BatchSequence> all;
      for (int r = 0; r < ranks; ++r) all.push_back(run.rank(r, ranks, seen, batch));
      for (int step = 0; step < steps && all[0].left() > 0; ++step) {
        const auto before = seen;
        std::vector<double> of_step(shares.size());
        for (auto& own : all) {
          const auto [part, weight] = own.next();
          ASSERT_EQ(part.x.size(0), part.y.size(0));
          for (std::int64_t i = 0; i < part.y.size(0); ++i)
            of_step[static_cast<std::size_t>(part.y[i].item<std::int64_t>())] +=
                weight / static_cast<double>(part.y.size(0)) / ranks;
          if (random() % 3 > 0) own.prefetch();
          ASSERT_EQ(own.seen(), all[0].seen());
          ASSERT_EQ(own.left(), all[0].left());
        }
        seen = all[0].seen();
        ASSERT_EQ(seen, std::min(before + ranks * batch, run.data.size()));
        for (std::size_t i = 0; i < shares.size(); ++i) {
          if (of_step[i] == 0) continue;
          ASSERT_EQ(shares[i], 0) << "sample " << i;
          ASSERT_NEAR(of_step[i], 1.0 / static_cast<double>(seen - before), 1e-12) << "sample " << i;
          shares[i] = of_step[i];
        }
      }
    }
    EXPECT_THAT(shares, testing::Each(testing::Gt(0)));
  }
}

TEST(BatchSequence, WhatIsFetchedAheadIsFetchedOnceAndDoesNotCount) {
  Ranks run(10, 1), plain(10, 1);
  auto ahead = run.rank(0, 1, 0, 4);
  auto in_time = plain.rank(0, 1, 0, 4);
  for (int i = 0; i < 3; ++i) {
    ahead.prefetch();
    ahead.prefetch();
    EXPECT_EQ(run.data.fetched, i + 1);
    EXPECT_EQ(plain.data.fetched, i);
    EXPECT_EQ(ahead.seen(), in_time.seen());
    EXPECT_EQ(ahead.left(), 3 - i);
    const auto a = ahead.next().batch, b = in_time.next().batch;
    EXPECT_TRUE(torch::equal(a.x, b.x) && torch::equal(a.y, b.y));
    EXPECT_EQ(run.data.fetched, i + 1);
  }
  EXPECT_EQ(ahead.seen(), 10);
  ahead.prefetch();  // Nothing is left.
  EXPECT_EQ(run.data.fetched, 3);
}

TEST(BatchSequence, BatchesStayWhereTheyAreOnACpu) {
  DeviceInput input(torch::kCPU);
  EXPECT_FALSE(input.copies());
  const Batch batch{torch::ones({2, 3, 4, 5}), torch::arange(2)};
  const auto same = input.start(batch);
  input.hold(same);
  EXPECT_TRUE(same.x.is_same(batch.x) && same.y.is_same(batch.y));
}

}  // namespace
}  // namespace farandole

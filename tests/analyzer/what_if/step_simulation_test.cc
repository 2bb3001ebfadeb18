#include "farandole/analyzer/what_if/step_simulation.h"

#include <gtest/gtest.h>
#include <random>

#include "lane.h"

namespace farandole {
namespace {

using Kind = StepOperation::Kind;
constexpr double one_ms = 1e6;

StepOperation work(double length_ms) {
  return {Kind::work, 0, length_ms * one_ms};
}
StepOperation await(std::uint32_t bucket) {
  return {Kind::await, bucket, 0};
}
constexpr StepOperation push{Kind::push, 0, 0};
constexpr StepOperation poll{Kind::poll, 0, 0};

double length_ms(SimulatedMachine machine, std::vector<BucketCost> buckets,
                 const std::vector<std::vector<StepOperation>>& ranks, std::size_t steps = 1) {
  machine.node_of_rank.resize(ranks.size());
  StepSimulation simulation(machine, std::move(buckets),
                            [&](std::size_t rank, std::size_t, std::vector<StepOperation>& into) {
                              into.insert(into.end(), ranks[rank].begin(), ranks[rank].end());
                            });
  const auto run = simulation.run(steps);
  EXPECT_EQ(run.period_ms.size(), steps);
  return run.length_ns / one_ms;
}

SimulatedMachine passing() {
  return {};
}
SimulatedMachine with_thread() {
  SimulatedMachine machine;
  machine.caller_driven = false;
  return machine;
}

TEST(SharedCores, GivesEachItsPart) {
  SharedCores cores(1, 2);
  for (std::size_t worker = 0; worker < 4; ++worker) cores.start(worker, 0, 10 * one_ms, 1, 0);
  EXPECT_NEAR(*cores.next(), 20 * one_ms, 1);
  cores.start(4, 0, 1 * one_ms, 1, 10 * one_ms);  // 5 one_ms of each are done; from now on each gets 0.4
  auto done = cores.take();
  EXPECT_EQ(done.worker, 4U);
  EXPECT_NEAR(done.time, 12.5 * one_ms, 1);
  for (int i = 0; i < 4; ++i) done = cores.take();
  EXPECT_NEAR(done.time, 20.5 * one_ms, 1);
  EXPECT_FALSE(cores.next());
}

TEST(StepSimulation, OneRankOnlyWorks) {
  EXPECT_NEAR(length_ms(passing(), {}, {{work(3), work(4)}}, 5), 35, 1e-6);
}

TEST(StepSimulation, WaitsForTheLastToArrive) {
  auto machine = passing();
  machine.wake_ns = 0.5 * one_ms;
  // Rank 0 waits from 2 on. Rank 1 arrives at 5 and does its part immediately. Rank 0 wakes up and does its
  // part, for which rank 1 waits.
  EXPECT_NEAR(length_ms(machine, {{0, 1 * one_ms, 0}},
                        {{work(2), push, poll, await(0), work(1)}, {work(5), push, poll, await(0), work(1)}}),
              5 + 0.5 + 1 + 0.5 + 1, 1e-6);
}

TEST(StepSimulation, PassingGetsOnOnlyWhenAGradientComes) {
  // Rank 0 arrives at 1 and rank 1 at 2. Rank 0 polls again only at 4, and rank 1 waits for its part.
  const std::vector<StepOperation> early = {work(1), push, poll, work(3), poll, await(0)};
  const std::vector<StepOperation> late = {work(2), push, poll, await(0), work(10)};
  EXPECT_NEAR(length_ms(passing(), {{0, 1 * one_ms, 0}}, {early, late}), 4 + 1 + 10, 1e-6);
  // A thread beside the training thread does it in the meantime.
  EXPECT_NEAR(length_ms(with_thread(), {{0, 1 * one_ms, 0}}, {early, late}), 2 + 1 + 10, 1e-6);
}

TEST(StepSimulation, ReducesBucketsOneAfterTheOther) {
  const std::vector<StepOperation> rank = {work(1), push, work(1), push, work(1), await(0), await(1)};
  EXPECT_NEAR(length_ms(with_thread(), {{0, 5 * one_ms, 0}, {0, 2 * one_ms, 0}}, {rank, rank}), 1 + 5 + 2,
              1e-6);
}

TEST(StepSimulation, ThreadsShareTheCoresThatThereAre) {
  auto machine = with_thread();
  machine.cores = 2;
  // From 1 on, two training threads and two threads that reduce share 2 cores: 2 one_ms of each take 4.
  const std::vector<StepOperation> rank = {work(1), push, work(2), await(0)};
  EXPECT_NEAR(length_ms(machine, {{0, 2 * one_ms, 0}}, {rank, rank}), 1 + 4, 1e-6);
  machine.parts_are_work = false;  // a network does it
  EXPECT_NEAR(length_ms(machine, {{0, 2 * one_ms, 0}}, {rank, rank}), 1 + 2, 1e-6);
}

TEST(StepSimulation, CollectivesOfTheTrainingThreadHoldAllUp) {
  const StepOperation meet{Kind::meet, 0, 2 * one_ms};
  EXPECT_NEAR(length_ms(passing(), {}, {{work(1), meet, work(1)}, {work(4), meet}}), 4 + 2 + 1, 1e-6);
}

TEST(StepSimulation, PausesTakeNoCore) {
  auto machine = passing();
  machine.cores = 1;
  EXPECT_NEAR(length_ms(machine, {}, {{{Kind::pause, 0, 10 * one_ms}}, {work(10)}}), 10, 1e-6);
  EXPECT_NEAR(length_ms(machine, {}, {{work(10)}, {work(10)}}), 20, 1e-6);
}

// For any programs, all steps end, and no step is shorter than the work of its slowest rank.
TEST(StepSimulation, AlwaysComesToItsEnd) {
  std::mt19937 random(seed(11));
  const auto some = [&](int most) {
    return static_cast<double>(random() % static_cast<unsigned>(most)) / 100;
  };
  for (int round = 0; round < 300; ++round) {
    auto machine = random() % 2 ? passing() : with_thread();
    machine.cores = static_cast<double>(random() % 4);
    machine.wake_ns = some(10) * one_ms;
    machine.parts_are_work = random() % 2 == 0;
    const std::size_t ranks = 1 + random() % 5, buckets = random() % 5;
    std::vector<BucketCost> costs;
    for (std::size_t b = 0; b < buckets; ++b)
      costs.push_back({some(100) * one_ms, some(300) * one_ms, some(100) * one_ms});
    const bool meets = random() % 2 == 0;
    std::vector<std::vector<StepOperation>> programs;
    double longest = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      auto& program = programs.emplace_back();
      double own = 0;
      const auto add = [&](double length) {
        program.push_back(work(length));
        own += length;
      };
      add(some(1000));
      if (meets) program.push_back({Kind::meet, 0, some(100) * one_ms});
      for (std::size_t b = 0; b < buckets; ++b) {
        add(some(300));
        if (random() % 2) program.push_back(poll);
        program.push_back(push);
        if (random() % 2) program.push_back(poll);
      }
      for (std::size_t b = 0; b < buckets; ++b) {
        program.push_back(await(static_cast<std::uint32_t>(b)));
        add(some(100));
      }
      if (meets) program.push_back({Kind::meet, 1, 0});
      longest = std::max(longest, own);
    }
    const std::size_t steps = 1 + random() % 6;
    EXPECT_GE(length_ms(machine, costs, programs, steps), longest * static_cast<double>(steps) - 1e-6);
  }
}

}  // namespace
}  // namespace farandole

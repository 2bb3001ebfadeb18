#include "farandole/analyzer/stragglers.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <random>

namespace farandole {
namespace {

constexpr auto phase_index(Phase phase) {
  return static_cast<std::size_t>(phase);
}

// What a fault adds to a rank's phases in a step; ms.
using Fault = std::function<void(std::size_t rank, std::size_t step, std::array<double, phase_count>& ms)>;

// Steps of 100 ms whose phases vary from rank to rank by `noise` (of their length, as standard deviation),
// now and then by much more; each ends when the last rank has come.
RunMetrics noisy_run(std::size_t ranks, std::size_t steps, double noise, unsigned seed, const Fault& fault) {
  std::mt19937 random(seed);
  std::normal_distribution<double> usual(1, noise);
  std::exponential_distribution<double> burst(1 / (noise * 100 + 1e-9));
  RunMetrics metrics;
  metrics.ranks.resize(ranks);
  double now_ms = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    std::vector<double> arrivals;
    for (auto& rank : metrics.ranks) {
      std::array<double, phase_count> ms{};
      ms[phase_index(Phase::data)] = std::max(0.0, 5 * usual(random));
      ms[phase_index(Phase::forward)] = std::max(0.0, 30 * usual(random));
      ms[phase_index(Phase::backward)] = std::max(0.0, 65 * usual(random));
      if (random() % 30 == 0) ms[random() % 3] += burst(random);
      fault(static_cast<std::size_t>(&rank - metrics.ranks.data()), step, ms);
      PhaseTimes times{};
      double arrival = 0;
      for (std::size_t phase = 0; phase < phase_count; ++phase) {
        times[phase] = static_cast<std::int64_t>(ms[phase] * 1e6);
        arrival += ms[phase];
      }
      rank.step_phases.push_back(times);
      arrivals.push_back(arrival);
    }
    const auto [first, last] = std::minmax_element(arrivals.begin(), arrivals.end());
    for (std::size_t r = 0; r < ranks; ++r) {
      metrics.ranks[r].lateness_steps.push_back(step);
      metrics.ranks[r].step_lateness_ms.push_back(arrivals[r] - *first);
    }
    metrics.window.steps.push_back({static_cast<std::int64_t>(now_ms * 1e6), 0});
    metrics.window.step_ms.push_back(*last);
    now_ms += *last;
    metrics.window.steps.back().end = metrics.window.time.end = static_cast<std::int64_t>(now_ms * 1e6);
  }
  return metrics;
}

struct Case {
  std::size_t ranks;
  double noise;
};

class NoisyRuns : public testing::TestWithParam<Case> {
 protected:
  // In each of many runs: this rank, phase and pattern, and nobody else that is always late.
  void expect_named(std::size_t rank, LatePattern pattern, const std::string& phase, std::size_t steps,
                    const Fault& fault) {
    for (unsigned seed = 0; seed < 50; ++seed) {
      const auto stragglers =
          find_stragglers(noisy_run(GetParam().ranks, steps, GetParam().noise, seed, fault));
      std::size_t named = 0;
      for (const auto& straggler : stragglers) {
        if (straggler.rank_index == rank) {
          ++named;
          EXPECT_EQ(name_of(straggler.pattern), name_of(pattern)) << "seed " << seed;
          EXPECT_EQ(straggler.phase, phase) << "seed " << seed;
        } else {
          EXPECT_NE(straggler.pattern, LatePattern::chronic) << "seed " << seed;
        }
      }
      EXPECT_EQ(named, 1U) << "seed " << seed;
    }
  }
};

TEST_P(NoisyRuns, name_a_rank_five_percent_slow) {
  expect_named(1, LatePattern::chronic, "backward", 300, [](auto rank, auto, auto& ms) {
    if (rank == 1) ms[phase_index(Phase::backward)] += 5;
  });
}

TEST_P(NoisyRuns, name_slow_data_though_other_phases_vary_more) {
  expect_named(0, LatePattern::chronic, "data", 300, [](auto rank, auto, auto& ms) {
    if (rank == 0) ms[phase_index(Phase::data)] += 6;
  });
}

TEST_P(NoisyRuns, name_a_rank_200_ms_late_in_few_steps) {
  expect_named(1, LatePattern::chronic, "backward", 10, [](auto rank, auto, auto& ms) {
    if (rank == 1) ms[phase_index(Phase::backward)] += 200;
  });
}

TEST_P(NoisyRuns, name_one_pause) {
  expect_named(1, LatePattern::one_off, "forward", 60, [](auto rank, auto step, auto& ms) {
    if (rank == 1 && step == 30) ms[phase_index(Phase::forward)] += 1000;
  });
}

TEST_P(NoisyRuns, call_nobody_chronic_without_a_fault) {
  for (unsigned seed = 0; seed < 50; ++seed)
    for (const auto& straggler :
         find_stragglers(noisy_run(GetParam().ranks, 300, GetParam().noise, seed, [](auto, auto, auto&) {})))
      EXPECT_NE(straggler.pattern, LatePattern::chronic) << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(Stragglers, NoisyRuns,
                         testing::Values(Case{2, 0.01}, Case{2, 0.05}, Case{2, 0.08}, Case{4, 0.03},
                                         Case{4, 0.06}, Case{16, 0.05}));

// Two ranks that take turns exactly, each late in half of the steps.
TEST(Stragglers, take_turns) {
  const auto stragglers = find_stragglers(noisy_run(2, 100, 0.01, 1, [](auto rank, auto step, auto& ms) {
    if (rank == step % 2) ms[phase_index(Phase::backward)] += 20;
  }));
  ASSERT_EQ(stragglers.size(), 2U);
  for (const auto& straggler : stragglers) EXPECT_EQ(straggler.pattern, LatePattern::rotating);
}

// A slow node: all of its ranks, and no other.
TEST(Stragglers, of_one_node) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto stragglers = find_stragglers(noisy_run(8, 300, 0.04, seed, [](auto rank, auto, auto& ms) {
      if (rank < 4)
        for (double& one : ms) one *= 1.05;
    }));
    std::size_t chronic = 0;
    for (const auto& straggler : stragglers) {
      if (straggler.pattern != LatePattern::chronic) continue;
      ++chronic;
      EXPECT_LT(straggler.rank_index, 4U) << "seed " << seed;
      EXPECT_EQ(straggler.phase, "backward") << "seed " << seed;
    }
    EXPECT_EQ(chronic, 4U) << "seed " << seed;
  }
}

}  // namespace
}  // namespace farandole

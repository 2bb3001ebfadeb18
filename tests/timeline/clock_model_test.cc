#include "farandole/timeline/clock_model.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "farandole/base/error.h"

namespace farandole {
namespace {

// A pair of clocks: reference = local + offset + drift · local.
struct Clocks {
  std::int64_t offset_ns;
  double drift;
  std::int64_t reference(std::int64_t local) const {
    return local + offset_ns + std::llround(drift * static_cast<double>(local));
  }
};

// Round trips of at least 2·base_ns whose two ways differ by random delays.
std::vector<RoundTrip> burst(const Clocks& clocks, std::int64_t at_ns, int count, std::int64_t base_ns,
                             std::mt19937_64& random) {
  std::exponential_distribution<double> delay(1.0 / static_cast<double>(base_ns));
  std::vector<RoundTrip> trips;
  for (int i = 0; i < count; ++i) {
    const auto there = base_ns + std::llround(delay(random));
    const auto back = base_ns + std::llround(delay(random));
    trips.push_back({at_ns, clocks.reference(at_ns + there), at_ns + there + back});
    at_ns += there + back;
  }
  return trips;
}

TEST(ClockModel, DefaultIsTheReference) {
  EXPECT_EQ(ClockModel().to_reference(123), 123);
  EXPECT_EQ(ClockModel().residual_ns(), 0);
}

TEST(ClockModel, OneRoundTripGivesTheOffset) {
  const RoundTrip trip{1000, 5'000'500, 2000};
  const ClockModel model = ClockModel::fit({&trip, 1});
  EXPECT_EQ(model.to_reference(1500), 5'000'500);
  EXPECT_EQ(model.drift(), 0);
  EXPECT_GE(model.residual_ns(), 500);
  EXPECT_LE(model.residual_ns(), 502);
}

TEST(ClockModel, RefusesWithoutASample) {
  const RoundTrip backwards{2000, 0, 1000};
  EXPECT_THROW(ClockModel::fit({}), Error);
  EXPECT_THROW(ClockModel::fit({&backwards, 1}), Error);
}

TEST(ClockModel, ErrorStaysBelowTheResidual) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 500; ++round) {
    const Clocks clocks{static_cast<std::int64_t>(random() % 2'000'000'000'000'000) - 1'000'000'000'000'000,
                        (static_cast<double>(random() % 2000) - 1000) * 1e-7};
    const auto start = static_cast<std::int64_t>(random() % 1'000'000'000'000);
    const auto length = static_cast<std::int64_t>(5'000'000'000 + random() % 3'600'000'000'000);
    const auto base = static_cast<std::int64_t>(1000 + random() % 50'000);
    auto samples = burst(clocks, start, 20, base, random);
    const auto end = burst(clocks, start + length, 20, base, random);
    samples.insert(samples.end(), end.begin(), end.end());
    if (round % 3 == 0) {
      const auto middle = burst(clocks, start + length / 2, 20, base, random);
      samples.insert(samples.end(), middle.begin(), middle.end());
    }
    const ClockModel model = ClockModel::fit(samples);
    EXPECT_LT(model.residual_ns(), 20 * base);
    std::int64_t last = INT64_MIN;
    for (std::int64_t at = start; at <= start + length; at += length / 50) {
      const std::int64_t mapped = model.to_reference(at);
      // Twice: a line through noisy bursts may miss the truth between them by what each of them leaves open.
      EXPECT_LE(std::abs(mapped - clocks.reference(at)), 2 * model.residual_ns()) << round;
      EXPECT_GT(mapped, last);
      last = mapped;
    }
  }
}

TEST(ClockModel, NoiseIsNoDrift) {
  std::mt19937_64 random(8);
  const Clocks clocks{1'000'000, 0};
  auto samples = burst(clocks, 0, 10, 10'000, random);
  const auto end = burst(clocks, 3'000'000'000, 10, 10'000, random);
  samples.insert(samples.end(), end.begin(), end.end());
  EXPECT_EQ(ClockModel::fit(samples).drift(), 0);
}

}  // namespace
}  // namespace farandole

#include "farandole/timeline/clock/clock_model.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "lane.h"

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

// Round trips of at least 2·base_ns, with independent random delays in both directions.
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

// The drift over the hour after the model's first second.
double drift(const ClockModel& model) {
  constexpr std::int64_t second_ns = 1'000'000'000, hour_ns = 3600 * second_ns;
  const auto on_reference = model.to_reference(second_ns + hour_ns) - model.to_reference(second_ns);
  return static_cast<double>(on_reference - hour_ns) / static_cast<double>(hour_ns);
}

TEST(ClockModel, DefaultIsTheReference) {
  EXPECT_EQ(ClockModel().to_reference(123), 123);
  EXPECT_EQ(ClockModel().residual_ns(), 0);
}

TEST(ClockModel, OneRoundTripGivesTheOffset) {
  const RoundTrip trip{1000, 5'000'500, 2000};
  const ClockModel model = ClockModel::fit({&trip, 1});
  EXPECT_EQ(model.to_reference(1500), 5'000'500);
  EXPECT_EQ(drift(model), 0);
  EXPECT_GE(model.residual_ns(), 500);
  EXPECT_LE(model.residual_ns(), 502);
}

TEST(ClockModel, RefusesWithoutASample) {
  const RoundTrip backwards{2000, 0, 1000};
  EXPECT_THROW(ClockModel::fit({}), Error);
  EXPECT_THROW(ClockModel::fit({&backwards, 1}), Error);
}

TEST(ClockModel, ErrorStaysBelowTheResidual) {
  std::mt19937_64 random(seed(7));
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
      // The factor 2 is needed because the line may deviate from the truth by the uncertainty of each burst.
      EXPECT_LE(std::abs(mapped - clocks.reference(at)), 2 * model.residual_ns()) << round;
      EXPECT_GT(mapped, last);
      last = mapped;
    }
  }
}

TEST(ClockModel, NoiseIsNoDrift) {
  std::mt19937_64 random(seed(8));
  const Clocks clocks{1'000'000, 0};
  auto samples = burst(clocks, 0, 10, 10'000, random);
  const auto end = burst(clocks, 3'000'000'000, 10, 10'000, random);
  samples.insert(samples.end(), end.begin(), end.end());
  EXPECT_EQ(drift(ClockModel::fit(samples)), 0);
}

// The drift changes, as with a crystal that warms up over the first hour or with NTP.
// Bursts are minutes apart.
TEST(ClockModel, FollowsADriftThatChanges) {
  std::mt19937_64 random(seed(11));
  constexpr std::int64_t minute = 60'000'000'000;
  for (int round = 0; round < 50; ++round) {
    const double fast = static_cast<double>(random() % 100) * 1e-6, change = 5e-6 + fast / 10;
    const double tau = 20.0 * static_cast<double>(minute);
    const auto offset = [&](std::int64_t at) {  // drift goes from fast to fast − change
      const auto x = static_cast<double>(at);
      return std::llround(fast * x - change * (x - tau * (1 - std::exp(-x / tau))));
    };
    std::vector<RoundTrip> samples;
    const int bursts = 30 + static_cast<int>(random() % 200);
    for (int i = 0; i < bursts; ++i) {
      const std::int64_t there = 3000 + static_cast<std::int64_t>(random() % 2000),
                         back = 3000 + static_cast<std::int64_t>(random() % 2000);
      const std::int64_t at = i * minute;
      samples.push_back({at, at + there + offset(at + there), at + there + back});
    }
    const ClockModel model = ClockModel::fit(samples);
    const std::int64_t end = (bursts - 1) * minute;
    std::int64_t last = INT64_MIN, worst = 0;
    for (std::int64_t at = 0; at <= end; at += minute / 7) {
      const std::int64_t reference = model.to_reference(at);
      worst = std::max<std::int64_t>(worst, std::abs(reference - (at + offset(at))));
      ASSERT_GT(reference, last);
      last = reference;
    }
    EXPECT_LE(worst, model.residual_ns());
    EXPECT_LE(model.residual_ns(), 20'000) << "a line would have milliseconds";
  }
}

TEST(ClockModel, StaysStraightWhereItMay) {
  std::mt19937_64 random(seed(3));
  const Clocks clocks{12'345, 20e-6};
  std::vector<RoundTrip> samples;
  for (int i = 0; i < 60; ++i) {
    const auto more = burst(clocks, i * 60'000'000'000, 20, 5000, random);
    samples.insert(samples.end(), more.begin(), more.end());
  }
  const ClockModel model = ClockModel::fit(samples);
  EXPECT_NEAR(drift(model), 20e-6, 1e-9);
  const auto middle = model.to_reference(30 * 60'000'000'000) - model.to_reference(0);
  const auto whole = model.to_reference(60 * 60'000'000'000) - model.to_reference(0);
  EXPECT_NEAR(static_cast<double>(whole), 2.0 * static_cast<double>(middle), 2.0);
}

// One round trip is implausible, as from a damaged file. It would need a jump that no oscillator makes.
// A run is killed long after the last burst.
TEST(ClockModel, ErrorStaysBelowTheResidualAfterTheLastBurst) {
  std::mt19937 random(seed(8));
  constexpr std::int64_t second = 1'000'000'000;
  for (int round = 0; round < 300; ++round) {
    const double drift = std::uniform_real_distribution(-9e-5, 9e-5)(random);
    const auto ahead_ns = [&](std::int64_t true_ns) {
      return 5 * second + std::llround(drift * static_cast<double>(true_ns));
    };
    std::vector<RoundTrip> trips;
    for (int burst = 0; burst < 1 + round % 3; ++burst) {
      const std::int64_t sent = burst * 60 * second;
      const auto there = sent + static_cast<std::int64_t>(random() % 30'000);
      const auto back = there + static_cast<std::int64_t>(random() % 30'000);
      trips.push_back({sent + ahead_ns(sent), there, back + ahead_ns(back)});
    }
    const std::int64_t end = (round % 3) * 60 * second + static_cast<std::int64_t>(random() % 3600) * second;
    const ClockModel model = ClockModel::fit(trips).until(end + ahead_ns(end));
    EXPECT_LE(std::abs(model.to_reference(end + ahead_ns(end)) - end), model.residual_ns() + 1) << round;
    EXPECT_EQ(ClockModel().until(end).residual_ns(), 0);
  }
}

// A shift changes the time by as much as it says, also if the model is bent.
TEST(ClockModel, IsShiftedBetweenTwoMomentsAndConstantlyElsewhere) {
  constexpr std::int64_t second = 1'000'000'000;
  std::vector<RoundTrip> trips;
  for (const std::int64_t at : {0, 60, 120, 180})
    trips.push_back({at * second, at * second + at * at * 10, at * second + 100});
  const ClockModel bent = ClockModel::fit(trips);
  const ClockModel shifted = bent.shifted(30 * second, -2000, 130 * second, 8000, 77);
  EXPECT_EQ(shifted.residual_ns(), 77);
  const auto by = [&](double at) {
    const auto at_ns = static_cast<std::int64_t>(at * 1e9);
    return static_cast<double>(shifted.to_reference(at_ns) - bent.to_reference(at_ns));
  };
  for (const double at : {-3600.0, 0.0, 29.0, 30.0}) EXPECT_NEAR(by(at), -2000, 1) << at;
  for (const double at : {40.0, 60.0, 61.0, 120.0, 129.0})
    EXPECT_NEAR(by(at), (at - 30) * 100 - 2000, 1) << at;
  for (const double at : {130.0, 131.0, 180.0, 3600.0}) EXPECT_NEAR(by(at), 8000, 1) << at;
}

TEST(ClockModel, ANonsensicalBurstIsNotFollowed) {
  std::vector<RoundTrip> samples;
  for (std::int64_t i = 0; i < 10; ++i)
    samples.push_back({i * 1'000'000'000'000, i * 1'000'000'000'000 + 500, i * 1'000'000'000'000 + 1000});
  samples[5].reference_ns += 900'000'000'000;
  const ClockModel model = ClockModel::fit(samples);
  std::int64_t last = INT64_MIN;
  for (std::int64_t at = 0; at < 10'000'000'000'000; at += 100'000'000'000) {
    ASSERT_GT(model.to_reference(at), last);
    last = model.to_reference(at);
  }
  EXPECT_GE(model.residual_ns(), 400'000'000'000);
}

}  // namespace
}  // namespace farandole

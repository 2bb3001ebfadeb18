// Clocks of ranks on one or several hosts, compared with rank 0's clock. Started by mpirun or srun.
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mutex>
#include <vector>

#include "comm/mpi_world.h"

#include "farandole/base/clock.h"
#include "farandole/comm/recording/clock_rounds.h"

namespace farandole {
namespace {

// The clock of a host that is off by up to 1 s and drifts by up to 50 ppm.
struct WrongClock {
  std::int64_t offset_ns;
  double drift;
  std::int64_t started_ns;
  std::int64_t local(std::int64_t true_ns) const {
    return true_ns + offset_ns + std::llround(drift * static_cast<double>(true_ns - started_ns));
  }
};

// Real round trips on wrong clocks; the second burst is shifted by a minute. The ranks of a machine, also in
// several hosts of the Slurm sandbox, share one true clock, with which the model is compared.
TEST(Clocks, AgreeWithinTheirResiduals) {
  constexpr std::int64_t minute_ns = 60'000'000'000;
  const int rank = world->layout().rank;
  const auto everyone = world->new_communicator(Waiting::yielding);
  for (const double sign : {-1.0, 1.0}) {
    for (int turn = 1; turn < rank; ++turn) everyone->barrier();
    std::vector<RoundTrip> first, second;
    if (rank != 0) first = measure_clock(world->control()), second = measure_clock(world->control());
    for (int turn = std::max(rank, 1); turn < everyone->size; ++turn) everyone->barrier();
    if (rank == 0) continue;
    const WrongClock clock{std::llround(sign * 1e9 / rank), sign * 50e-6 / rank, first.front().reference_ns};
    std::vector<RoundTrip> seen;
    const auto see = [&](const std::vector<RoundTrip>& trips, std::int64_t later_ns) {
      for (const RoundTrip& trip : trips)
        seen.push_back({clock.local(trip.send_ns + later_ns), trip.reference_ns + later_ns,
                        clock.local(trip.receive_ns + later_ns)});
    };
    see(first, 0);
    see(second, minute_ns);
    const ClockModel model = ClockModel::fit(seen);
    for (std::int64_t after_ns = 0; after_ns <= minute_ns; after_ns += minute_ns / 6) {
      const std::int64_t true_ns = clock.started_ns + after_ns;
      EXPECT_LE(std::abs(model.to_reference(clock.local(true_ns)) - true_ns), model.residual_ns() + 1);
    }
    const auto residual = static_cast<double>(model.residual_ns());
    const std::int64_t local_ns = clock.local(clock.started_ns);
    const auto on_reference = model.to_reference(local_ns + minute_ns) - model.to_reference(local_ns);
    const double drift = static_cast<double>(on_reference - minute_ns) / static_cast<double>(minute_ns);
    EXPECT_NEAR(drift, -clock.drift, 10e-6 + 2 * residual / static_cast<double>(minute_ns));
    const double residual_us = residual * 1e-3;
    fmt::print("rank {} agrees with rank 0's clock to {:.1f} µs\n", rank, residual_us);
    if (const char* most = std::getenv("FARANDOLE_TEST_RESIDUAL_US"); most != nullptr) {
      EXPECT_LE(residual_us, std::atof(most));
    }
  }
}

TEST(Clocks, OfOneHostAreNotMeasured) {
  if (world->layout().nodes.back() != 0) return;
  EXPECT_FALSE(measures_clock(world->control()));
}

// Each rank except rank 0 asks while all ranks do other work.
TEST(Clocks, AreMeasuredWhileTheJobRuns) {
  constexpr std::size_t rounds = 3;
  std::mutex mutex;
  std::condition_variable enough;
  std::vector<RoundTrip> seen;
  const auto everyone = world->new_communicator(Waiting::yielding);
  if (everyone->rank != 0) {
    const ClockRounds measuring(world->control(), std::chrono::milliseconds(1),
                                [&](std::span<const RoundTrip> trips) {
                                  const std::lock_guard lock(mutex);
                                  seen.insert(seen.end(), trips.begin(), trips.end());
                                  enough.notify_one();
                                });
    std::unique_lock lock(mutex);
    enough.wait(lock, [&] { return seen.size() >= rounds; });
  }
  everyone->barrier("barrier");
  for (const RoundTrip& trip : seen) {
    EXPECT_LE(trip.send_ns, trip.reference_ns);  // both are on one clock
    EXPECT_LE(trip.reference_ns, trip.receive_ns);
  }
}

}  // namespace
}  // namespace farandole

#include "farandole/comm/gpu/device_flights.h"

#include <gtest/gtest.h>

#include "comm/gpu_world.h"

namespace farandole {
namespace {

// Work that was aborted may use memory of a rank that has ended, which a device can refuse.
TEST(DeviceFlights, ALossIsTheCauseOfALaterFailureOfTheDevice) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double fails";
  const auto ends = run_gpu_ranks(1, [](GpuRank& rank) {
    std::mutex mutex;
    const auto peers = meet_peers(rank.bootstrap, *rank.runtime, 0, {});
    DeviceFlights flights(rank.runtime, 0, mutex, peers, 0, {},
                          {[](const std::string&) { return std::nullopt; }, [] {}});
    const GpuStream stream(rank.runtime);
    GpuEvent event(rank.runtime);
    event.record(stream.handle());
    ::setenv("GPU_DOUBLE_FAIL", "cudaEventQuery:1", 1);
    {
      const std::lock_guard lock(mutex);
      flights.fail({"rank 3 was lost", ExitCode::peer_lost});
    }
    flights.await(event);
  });
  EXPECT_EQ(ends[0].exit_code, 70);
  EXPECT_EQ(ends[0].message, "rank 3 was lost");
}

TEST(DeviceFlights, AThreadThatCannotUseTheDeviceIsALoss) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double fails";
  const auto ends = run_gpu_ranks(1, [](GpuRank& rank) {
    std::mutex mutex;
    const auto peers = meet_peers(rank.bootstrap, *rank.runtime, 0, {});
    ::setenv("GPU_DOUBLE_FAIL", "cudaSetDevice:1", 1);
    DeviceFlights flights(rank.runtime, 0, mutex, peers, 0, {},
                          {[](const std::string&) { return std::nullopt; }, [] {}});
    for (;;) flights.check();
  });
  EXPECT_EQ(ends[0].exit_code, 1);
  EXPECT_EQ(ends[0].message, "cudaSetDevice: an injected error");
}

}  // namespace
}  // namespace farandole

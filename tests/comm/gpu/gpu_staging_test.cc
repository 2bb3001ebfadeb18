// Snapshots of memory that a device changes in each step. The double of CUDA counts work that uses the same
// memory without order as a failure.
#include "farandole/comm/gpu/gpu_staging.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <gmock/gmock.h>
#include <random>
#include <thread>
#include <vector>

#include "comm/gpu_world.h"
#include "lane.h"

namespace farandole {
namespace {

// A rank with state on its device that each step replaces on the stream `compute`.
struct Training {
  Training(GpuRank& rank, unsigned seed) : runtime(rank.runtime), compute(runtime), staging(runtime) {
    runtime->use(0);
    std::mt19937 random(seed);
    for (int i = 0; i < 7; ++i) {
      const std::size_t bytes = random() % 3 == 0 ? random() % 5 : random() % 40'000;
      state.push_back(runtime->allocate(bytes));
      pieces.push_back({state.back().get(), bytes});
      longest = std::max(longest, bytes);
    }
  }

  void step() {
    values.push_back(runtime->allocate_pinned(longest));
    std::memset(values.back().get(), static_cast<int>(values.size()), longest);
    staging.hold(compute.handle());
    for (std::size_t i = 0; i < state.size(); ++i)
      runtime->copy(state[i].get(), values.back().get(), pieces[i].bytes, compute.handle());
  }
  // Returns a thread that takes the snapshot, as that of the checkpoint store.
  std::thread snapshot() {
    return std::thread([copies = staging.start(pieces, compute.handle()), expected = values.size(), this] {
      copies->wait();
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        std::vector<std::byte> piece(pieces[i].bytes);
        copies->read(i, piece.data());
        EXPECT_TRUE(std::all_of(piece.begin(), piece.end(),
                                [&](std::byte value) { return value == static_cast<std::byte>(expected); }))
            << "step " << expected;
      }
    });
  }

  std::shared_ptr<const GpuRuntime> runtime;
  GpuStream compute;
  GpuStaging staging;
  std::vector<Buffer> state, values;
  std::vector<GpuStaging::Piece> pieces;
  std::size_t longest = 0;
};

TEST(GpuStaging, HasTheStateOfTheStepWhileTrainingGoesOn) {
  const auto first = seed(5);
  expect_all_succeed(run_gpu_ranks(1, [&](GpuRank& rank) {
    SCOPED_TRACE(testing::Message() << "seed " << first);
    Training training(rank, first);
    std::vector<std::thread> takers;
    for (int step = 0; step < 12; ++step) {
      training.step();
      if (step % 3 != 1) takers.push_back(training.snapshot());
    }
    for (auto& taker : takers) taker.join();
  }));
}

// The pinned memory is in chunks, and the first snapshot may come while it is being taken.
TEST(GpuStaging, PreparesMemoryForPiecesOfAnySize) {
  for (const bool at_once : {true, false})
    expect_all_succeed(run_gpu_ranks(1, [&](GpuRank& rank) {
      const auto runtime = rank.runtime;
      runtime->use(0);
      const GpuStream compute(runtime);
      const std::vector<std::size_t> sizes = {1, (8 << 20) - 256, 3, (17 << 20) + 5, 0, 1 << 20};
      std::vector<Buffer> state;
      std::vector<GpuStaging::Piece> pieces;
      const auto values = runtime->allocate_pinned(sizes[3]);
      for (std::size_t i = 0; i < sizes[3]; ++i) values.get()[i] = static_cast<std::byte>(i * 7 % 251);
      std::size_t bytes = 0;
      for (const auto size : sizes) {
        state.push_back(runtime->allocate(size));
        runtime->copy(state.back().get(), values.get(), size, compute.handle());
        pieces.push_back({state.back().get(), size});
        bytes += size;
      }
      GpuStaging staging(runtime);
      staging.prepare(bytes, 0);
      if (!at_once) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      const auto copies = staging.start(pieces, compute.handle());
      copies->wait();
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        std::vector<std::byte> piece(sizes[i]);
        copies->read(i, piece.data());
        EXPECT_TRUE(std::equal(piece.begin(), piece.end(), values.get())) << sizes[i];
      }
    }));
}

// If the host waited for the device, it would wait until the alarm.
TEST(GpuStaging, TheHostQueuesSnapshotAndUpdateWhileTheDeviceStandsStill) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double can stand still";
  expect_all_succeed(run_gpu_ranks(1, [](GpuRank& rank) {
    Training training(rank, 1);
    training.step();
    training.snapshot().join();  // the memory is there
    training.step();
    auto& pause = of_double<void(bool)>("gpu_double_pause");
    pause(true);
    ::alarm(20);
    auto taker = training.snapshot();
    training.step();
    pause(false);
    taker.join();
  }));
}

int four_steps(GpuRank& rank) {
  Training training(rank, 1);
  std::thread taker;  // the training thread itself waits for nothing
  for (int step = 0; step < 4; ++step) {
    training.step();
    if (taker.joinable()) taker.join();
    taker = std::thread(
        [copies = training.staging.start(training.pieces, training.compute.handle())] { copies->wait(); });
  }
  taker.join();
  return of_double<int()>("gpu_double_waits")();
}

// The copies wait for the writes before them, and the writes after them for the copies.
TEST(GpuStagingMutations, NoWaitForAnEventCanBeLeftOut) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double leaves out waits";
  const auto waits = run_gpu_ranks(1, [](GpuRank& rank) { throw Error(std::to_string(four_steps(rank))); });
  const int count = std::atoi(waits[0].message.c_str());
  ASSERT_EQ(count, 7) << waits[0].message;
  for (int lost = 1; lost <= count; ++lost)
    expect_all_succeed(run_gpu_ranks(1,
                                     [&](GpuRank& rank) {
                                       four_steps(rank);
                                       EXPECT_GT(races(), 0) << "wait " << lost << " of " << count;
                                     },
                                     {{"GPU_DOUBLE_LOSE_WAIT", std::to_string(lost)}}));
}

// Copies that nobody waits for still have their memory until the device has written it, also after the
// staging has gone.
TEST(GpuStaging, CopiesMayBeThrownAway) {
  expect_all_succeed(run_gpu_ranks(1, [](GpuRank& rank) {
    std::shared_ptr<const GpuStaging::Copies> last;
    Training training(rank, 3);
    for (int step = 0; step < 5; ++step) {
      training.step();
      training.staging.start(training.pieces, training.compute.handle());
    }
    GpuStaging other(rank.runtime);
    last = other.start(training.pieces, training.compute.handle());
  }));
}

TEST(GpuStaging, EveryCallThatFailsIsNamed) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double fails";
  for (const std::string fault :
       {"cudaHostAlloc:2", "cudaEventRecord:1", "cudaStreamWaitEvent:1", "cudaMemcpyAsync:8",
        "cudaMemcpyAsync:11", "cudaEventRecord:2", "cudaStreamWaitEvent:2", "cudaEventQuery:1"}) {
    const auto ends = run_gpu_ranks(1,
                                    [](GpuRank& rank) {
                                      Training training(rank, 1);
                                      training.step();
                                      const auto copies =
                                          training.staging.start(training.pieces, training.compute.handle());
                                      training.step();
                                      copies->wait();
                                    },
                                    {{"GPU_DOUBLE_FAIL", fault}});
    EXPECT_EQ(ends[0].exit_code, 1) << fault;
    EXPECT_THAT(ends[0].message, testing::HasSubstr(fault.substr(0, fault.find(':')))) << fault;
  }
}

}  // namespace
}  // namespace farandole

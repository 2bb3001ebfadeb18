// Ranks that share a GPU. They are processes with the test double of CUDA, whose memory they really share.
// The double counts work of all ranks that uses the same memory without order as a failure. On a real GPU,
// all ranks use the first one.
#include "farandole/comm/ipc/ipc_communicator.h"

#include <array>
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "comm/gpu_world.h"
#include "comm/typed_values.h"
#include "lane.h"

#include "farandole/comm/kernels/kernels.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A rank with memory for collectives and streams of its own for copies to the device, collectives,
// and copies back.
struct SharingRank {
  static constexpr std::size_t most_bytes = 200'000;

  explicit SharingRank(GpuRank& rank, DeviceCommunicatorOptions options = {})
      : runtime(rank.runtime),
        comm(rank.bootstrap, rank.runtime, 0, std::move(options)),
        in(runtime),
        work(runtime),
        out(runtime),
        ready(runtime),
        reduced(runtime),
        done(runtime) {
    for (auto* const buffer : {&first, &second}) *buffer = comm.allocate(most_bytes);
  }

  // Copies the host's memory to the device, runs `collective` there, and copies the result back.
  template <class Collective>
  void run(const std::byte* from, std::byte* at, std::size_t in_bytes, std::byte* to, const std::byte* result,
           std::size_t out_bytes, Collective collective) {
    runtime->copy(at, from, in_bytes, in.handle());
    ready.record(in.handle());
    ready.hold(work.handle());
    collective();
    reduced.record(work.handle());
    reduced.hold(out.handle());
    runtime->copy(to, result, out_bytes, out.handle());
    done.record(out.handle());
  }

  void allreduce_once(std::string_view name) {
    comm.allreduce(name, first.get(), 100, DType::float32, ReduceOp::sum, 1, work.handle());
    done.record(work.handle());
    comm.await(done);
  }

  std::shared_ptr<const GpuRuntime> runtime;
  IpcCommunicator comm;
  GpuStream in, work, out;
  GpuEvent ready, reduced, done;
  Buffer first, second;
};

// Numbers whose sums depend on the order.
void fill_inexact(std::byte* data, DType dtype, std::size_t count, unsigned seed, int rank) {
  std::mt19937 random(seed + 77u * static_cast<unsigned>(rank));
  for (std::size_t i = 0; i < count; ++i)
    store(data, dtype, i,
          dtype == DType::uint8 ? random() % 256 : static_cast<double>(random() % 2000) / 7 - 100);
}

// What the communicators of CPUs give: the reduction of all ranks' data in the order of ranks.
std::vector<std::byte> reduced_on_cpu(DType dtype, ReduceOp op, std::size_t count, unsigned seed, int ranks) {
  std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(ranks));
  std::vector<const std::byte*> from;
  for (int r = 0; r < ranks; ++r) {
    auto& input = inputs[static_cast<std::size_t>(r)];
    input.resize(count * size_of(dtype) + 1);
    fill_inexact(input.data(), dtype, count, seed, r);
    from.push_back(input.data());
  }
  std::vector<std::byte> result(count * size_of(dtype) + 1);
  auto* const to = result.data();
  reduce(from, std::span(&to, 1), count, dtype, op);
  result.pop_back();
  return result;
}

// One random collective; `random` is in the same state on every rank.
void try_random(SharingRank& gpu, std::mt19937& random) {
  constexpr ReduceOp every_op[] = {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max,
                                   ReduceOp::product};
  const int size = gpu.comm.size;
  const auto own = static_cast<std::size_t>(gpu.comm.rank);
  auto dtype = all_dtypes[random() % std::size(all_dtypes)];
  if (dtype == DType::boolean) dtype = DType::uint8;
  auto op = every_op[random() % std::size(every_op)];
  if (!can_reduce(op, dtype)) op = ReduceOp::sum;
  const auto first = static_cast<unsigned>(random() % 1000);
  const std::size_t unit = random() % 3 == 0 ? random() % 3 : random() % (20'000 / size_of(dtype));
  const bool even = random() % 2 == 0;
  std::vector<std::size_t> counts, bytes;
  for (int r = 0; r < size; ++r) {
    counts.push_back(even ? unit : random() % (unit + 1));
    bytes.push_back(counts.back() * size_of(dtype));
  }
  const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const auto before =
      std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(own), std::size_t{0});
  const auto all = total * size_of(dtype);
  const std::size_t offset = random() % 2 == 0 ? 0 : size_of(dtype) * (random() % 20);
  auto* const a = gpu.first.get() + offset;
  auto* const b = gpu.second.get() + offset;
  const auto from = gpu.runtime->allocate_pinned(all), to = gpu.runtime->allocate_pinned(all);
  fill_inexact(from.get(), dtype, total, first, gpu.comm.rank);
  const auto what = [&] {
    return testing::Message() << name_of(dtype) << " " << name_of(op) << " of " << total << " elements";
  };
  const auto expect = [&](std::span<const std::byte> right) {
    gpu.comm.await(gpu.done);
    EXPECT_TRUE(std::equal(right.begin(), right.end(), to.get())) << what();
  };
  auto* const stream = gpu.work.handle();
  switch (random() % 3) {
    case 0:
      gpu.run(from.get(), a, all, to.get(), a, all,
              [&] { gpu.comm.allreduce("test", a, total, dtype, op, 1, stream); });
      return expect(reduced_on_cpu(dtype, op, total, first, size));
    case 1: {  // In parts of one size, in place.
      const auto count = counts.front() * counts.size(), part = counts.front() * size_of(dtype);
      const auto parts = gpu.runtime->allocate_pinned(part * counts.size());
      fill_inexact(parts.get(), dtype, count, first, gpu.comm.rank);
      const auto result = reduced_on_cpu(dtype, op, count, first, size);
      const DeviceReduction scattered{a, count, dtype, op, 1, /*scattered=*/true};
      gpu.run(parts.get(), a, part * counts.size(), parts.get(), a + own * part, part, [&] {
        gpu.comm.reduce("test", {&scattered, 1}, stream);
      });
      gpu.comm.await(gpu.done);
      EXPECT_TRUE(std::equal(parts.get(), parts.get() + part,
                             result.begin() + static_cast<std::ptrdiff_t>(own * part)))
          << what();
      return;
    }
    default: {
      auto* const in = random() % 2 == 0 ? a + before * size_of(dtype) : b;
      gpu.run(from.get(), in, bytes[own], to.get(), a, all,
              [&] { gpu.comm.all_gather("test", in, a, bytes, stream); });
      std::vector<std::byte> result, part(all);
      for (std::size_t r = 0; r < counts.size(); ++r) {
        fill_inexact(part.data(), dtype, counts[r], first, static_cast<int>(r));
        result.insert(result.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(bytes[r]));
      }
      return expect(result);
    }
  }
}

class IpcRanks : public testing::TestWithParam<int> {};

TEST_P(IpcRanks, RandomCollectivesHaveTheBitsOfTheCpu) {
  const auto first = seed(12);
  expect_all_succeed(run_gpu_ranks(GetParam(), [&](GpuRank& rank) {
    SCOPED_TRACE(testing::Message() << "seed " << first << " rank " << rank.rank);
    SharingRank gpu(rank);
    std::mt19937 random(first);
    for (int i = 0; i < 30 && !testing::Test::HasFailure(); ++i) try_random(gpu, random);
  }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, IpcRanks, testing::Values(1, 2, 3, 5));

// Several collectives of each kind in a row, without a wait of the host, so that all waits of
// streams are needed.
int queue_all_kinds(GpuRank& rank) {
  SharingRank gpu(rank);
  constexpr std::size_t count = 300, bytes = 4 * count;
  const auto from = gpu.runtime->allocate_pinned(bytes), to = gpu.runtime->allocate_pinned(bytes);
  const std::vector<std::size_t> parts(static_cast<std::size_t>(rank.size), bytes / 3);
  auto* const stream = gpu.work.handle();
  auto *const a = gpu.first.get(), *const b = gpu.second.get();
  gpu.runtime->copy(a, from.get(), bytes, stream);
  gpu.comm.allreduce("one", a, count, DType::float32, ReduceOp::sum, 1, stream);
  gpu.runtime->copy(a, from.get(), bytes, stream);
  const DeviceReduction scattered{a, count / 6 * parts.size(), DType::float32, ReduceOp::sum, 1, true};
  gpu.comm.reduce("two", {&scattered, 1}, stream);
  gpu.runtime->copy(b, a, bytes, stream);
  gpu.runtime->copy(a, from.get(), bytes, stream);
  gpu.comm.all_gather("three", b, a, parts, stream);
  gpu.runtime->copy(to.get(), a, bytes, stream);
  gpu.done.record(stream);
  gpu.comm.await(gpu.done);
  return of_double<int()>("gpu_double_waits")();
}

TEST(IpcMutations, NoWaitOfAStreamCanBeLeftOut) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double leaves out waits";
  const auto waits =
      run_gpu_ranks(2, [](GpuRank& rank) { throw Error(std::to_string(queue_all_kinds(rank))); });
  const int count = std::atoi(waits[0].message.c_str());
  ASSERT_EQ(count, 6)  // Two for each collective.
      << waits[0].message;
  for (int lost = 1; lost <= 2 * count; ++lost)
    expect_all_succeed(
        run_gpu_ranks(2,
                      [&](GpuRank& rank) {
                        if (rank.rank == lost % 2)
                          ::setenv("GPU_DOUBLE_LOSE_WAIT", std::to_string((lost + 1) / 2).c_str(), 1);
                        queue_all_kinds(rank);
                        rank.shared += races();
                        std::byte token{}, tokens[2];
                        rank.bootstrap.all_gather("races", &token, tokens, std::array<std::size_t, 2>{1, 1});
                        EXPECT_GT(rank.shared, 0) << "wait " << (lost + 1) / 2 << " of rank " << lost % 2;
                      },
                      {{"GPU_DOUBLE_LOSE_WAIT", "-1"}}));
}

// If the host waited for a device or for the device of another rank, it would wait until the alarm.
TEST(IpcCommunicator, TheHostQueuesWhileTheDeviceStandsStill) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double can stand still";
  expect_all_succeed(run_gpu_ranks(2, [](GpuRank& rank) {
    SharingRank gpu(rank);
    auto& pause = of_double<void(bool)>("gpu_double_pause");
    pause(true);
    ::alarm(20);
    const std::array<std::size_t, 2> parts{100, 100};
    for (int i = 0; i < 5; ++i) {
      gpu.comm.allreduce("test", gpu.first.get(), 1000, DType::float32, ReduceOp::sum, 1, gpu.work.handle());
      gpu.comm.all_gather("test", gpu.first.get(), gpu.second.get(), parts, gpu.work.handle());
    }
    gpu.done.record(gpu.work.handle());
    pause(false);
    gpu.comm.await(gpu.done);
  }));
}

TEST(IpcCommunicator, ALostRankEndsTheWaitOfTheOthers) {
  expect_that_others_name_a_lost_rank<SharingRank>();
}

TEST(IpcCommunicator, ReducesSeveralArraysTogether) {
  expect_that_arrays_are_reduced_together<SharingRank>();
}

// Calls of the collectives below, and how many of them come before the last one for which others wait.
const std::map<std::string, int> calls_of_collectives = {{"cuStreamWriteValue32", 6},
                                                         {"cuStreamWaitValue32", 5},
                                                         {"cudaLaunchKernel", 2},
                                                         {"cudaMemcpyAsync", 6},
                                                         {"cudaEventRecord", 2}};

// The rank whose call fails names it, and the others do not wait for it.
TEST(IpcCommunicator, ACallThatFailsEndsAllRanks) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double fails";
  std::mt19937 random(seed(9));
  for (const auto& [call, most] : calls_of_collectives) {
    const auto fault = call + ":" + std::to_string(1 + random() % static_cast<unsigned>(most));
    const auto ends = run_gpu_ranks(2, [&](GpuRank& rank) {
      if (rank.rank == 1) ::setenv("GPU_DOUBLE_FAIL", fault.c_str(), 1);
      queue_all_kinds(rank);
    });
    EXPECT_EQ(ends[1].exit_code, 1) << fault << ": " << ends[1].message;
    EXPECT_THAT(ends[1].message, HasSubstr(call)) << fault;
    EXPECT_EQ(ends[0].exit_code, 70) << fault << ": " << ends[0].message;
    EXPECT_THAT(ends[0].message, HasSubstr("rank 1 ")) << fault;
  }
}

TEST(IpcCommunicator, ARankLostInAnyCallEndsTheOthers) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double dies";
  std::mt19937 random(seed(10));
  for (const auto& [call, most] : calls_of_collectives) {
    const auto death = call + ":" + std::to_string(1 + random() % static_cast<unsigned>(most));
    const auto ends = run_gpu_ranks(3, [&](GpuRank& rank) {
      if (rank.rank == 1) ::setenv("GPU_DOUBLE_DIE", death.c_str(), 1);
      queue_all_kinds(rank);
    });
    EXPECT_EQ(ends[1].exit_code, -1) << death;
    for (const std::size_t other : {0, 2}) {
      EXPECT_EQ(ends[other].exit_code, 70) << death << ": " << ends[other].message;
      EXPECT_THAT(ends[other].message, AllOf(HasSubstr("rank 1 "), HasSubstr("killed by SIGKILL"))) << death;
    }
  }
}

// All ranks throw what has failed on one of them, because they all take part in an allocation.
TEST(IpcCommunicator, AnAllocationThatFailsIsKnownToAllRanks) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double fails";
  for (const std::string call : {"cudaMalloc", "cudaIpcGetMemHandle", "cudaIpcOpenMemHandle"})
    for (const auto& end : run_gpu_ranks(2, [&](GpuRank& rank) {
           if (rank.rank == 1) ::setenv("GPU_DOUBLE_FAIL", (call + ":1").c_str(), 1);
           const SharingRank gpu(rank);
         })) {
      EXPECT_EQ(end.exit_code, 1) << call;
      EXPECT_THAT(end.message, AllOf(HasSubstr("process 1: " + call), HasSubstr("an injected error")))
          << call;
    }
}

TEST(IpcCommunicator, RefusesWhatItCannotDo) {
  expect_all_succeed(run_gpu_ranks(2, [](GpuRank& rank) {
    SharingRank gpu(rank);
    const auto other = rank.runtime->allocate(400);
    auto* const stream = gpu.work.handle();
    EXPECT_THROW(gpu.comm.allreduce("test", other.get(), 100, DType::float32, ReduceOp::sum, 1, stream),
                 UserError);
    EXPECT_THROW(gpu.comm.allreduce("test", gpu.first.get(), 100, DType::int32, ReduceOp::average, 1, stream),
                 UserError);
    const std::array<std::size_t, 2> parts{200, 200};
    EXPECT_THROW(gpu.comm.all_gather("test", gpu.first.get(), other.get(), parts, stream), UserError);
    EXPECT_THROW(gpu.comm.all_gather("test", gpu.first.get(), gpu.second.get() + (1 << 21), parts, stream),
                 UserError);
    EXPECT_THROW(gpu.comm.allocate(rank.rank == 0 ? 1 : 3 << 20), UserError);
  }));
  const auto ends =
      run_gpu_ranks(2, [](GpuRank& rank) { const SharingRank gpu(rank); }, {{"GPU_DOUBLE_OLD_DRIVER", "1"}});
  for (const auto& end : ends) {
    if (real_gpus() > 0) continue;
    EXPECT_EQ(end.exit_code, 64);
    EXPECT_THAT(end.message, HasSubstr("the driver of the GPU has no cuStreamWriteValue32"));
  }
}

// Memory that was given back is zero again, and its new use waits for all that went before.
TEST(IpcCommunicator, UsesMemoryAgain) {
  expect_all_succeed(run_gpu_ranks(3, [](GpuRank& rank) {
    SharingRank gpu(rank);
    constexpr std::size_t count = 1000;
    const auto host = rank.runtime->allocate_pinned(4 * count);
    std::byte* last = nullptr;
    for (int round = 0; round < 5; ++round) {
      const auto memory = gpu.comm.allocate(4 * count);
      if (last != nullptr) {
        EXPECT_EQ(memory.get(), last);
      }
      last = memory.get();
      auto* const stream = gpu.work.handle();
      rank.runtime->copy(host.get(), memory.get(), 4 * count, stream);
      gpu.done.record(stream);
      gpu.comm.await(gpu.done);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(load(host.get(), DType::float32, i), 0) << round;
      fill(host.get(), DType::float32, count, 1, rank.rank);
      rank.runtime->copy(memory.get(), host.get(), 4 * count, stream);
      gpu.comm.allreduce("test", memory.get(), count, DType::float32, ReduceOp::sum, 1, stream);
    }
  }));
}

TEST(IpcCommunicator, MemoryMayOutliveIt) {
  expect_all_succeed(run_gpu_ranks(2, [](GpuRank& rank) {
    Buffer memory;
    {
      IpcCommunicator comm(rank.bootstrap, rank.runtime, 0);
      memory = comm.allocate(100);
    }
    memory.reset();
  }));
}

// The watchdog reads the registry. Rank 1 comes only when rank 0 has been seen waiting.
TEST(IpcCommunicator, TheRegistryShowsTheCollectiveInFlight) {
  expect_all_succeed(run_gpu_ranks(2, [](GpuRank& rank) {
    CollectiveRegistry registry;
    SharingRank gpu(rank, {.number = 9, .registry = &registry});
    const auto status = [&] { return registry.read().at(0); };
    while (rank.rank == 1 && rank.shared == 0) std::this_thread::yield();
    gpu.comm.allreduce("bucket 5", gpu.first.get(), 2, DType::float32, ReduceOp::sum, 1, gpu.work.handle());
    gpu.done.record(gpu.work.handle());
    while (rank.rank == 0 && !status().in_flight) std::this_thread::yield();
    if (rank.rank == 0) {
      EXPECT_EQ(status().communicator, 9);
      EXPECT_EQ(status().operation, "allreduce");
      EXPECT_EQ(status().name, "bucket 5");
      EXPECT_EQ(status().bytes, 8u);
      rank.shared = 1;
    }
    gpu.comm.await(gpu.done);
    while (status().in_flight || status().entered < 1) std::this_thread::yield();
  }));
}

}  // namespace
}  // namespace farandole

#include "farandole/comm/nccl/nccl_communicator.h"

#include <array>
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "comm/gpu_world.h"
#include "comm/typed_values.h"
#include "lane.h"

#include "farandole/base/clock.h"
#include "farandole/comm/gpu/cuda_functions.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A rank with streams of its own for copies to the device, collectives, and copies back, ordered
// by events alone.
struct GpuPipeline {
  explicit GpuPipeline(GpuRank& rank, DeviceCommunicatorOptions options = {})
      : runtime(rank.runtime),
        comm(rank.bootstrap, rank.runtime, rank.rank, std::move(options)),
        in(runtime),
        work(runtime),
        out(runtime),
        ready(runtime),
        reduced(runtime),
        done(runtime) {}

  // Copies the host's memory to the device, runs `collective` there, and copies the result back.
  template <class Collective>
  void run(std::byte* host_in, std::size_t in_bytes, std::byte* host_out, std::size_t out_bytes,
           Collective collective) {
    const auto device_in = comm.allocate(in_bytes), device_out = comm.allocate(out_bytes);
    runtime->copy(device_in.get(), host_in, in_bytes, in.handle());
    ready.record(in.handle());
    ready.hold(work.handle());
    collective(device_in.get(), device_out.get());
    reduced.record(work.handle());
    reduced.hold(out.handle());
    runtime->copy(host_out, device_out.get(), out_bytes, out.handle());
    done.record(out.handle());
    comm.await(done);
  }

  void allreduce_once(std::string_view name) {
    const auto host = runtime->allocate_pinned(4), device = comm.allocate(4);
    comm.allreduce(name, device.get(), 1, DType::float32, ReduceOp::sum, work.handle());
    done.record(work.handle());
    comm.await(done);
  }

  std::shared_ptr<const GpuRuntime> runtime;
  NcclCommunicator comm;
  GpuStream in, work, out;
  GpuEvent ready, reduced, done;
};

constexpr ReduceOp ops[] = {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max,
                            ReduceOp::product};
constexpr DType dtypes[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64,
                            DType::int32,   DType::int64,    DType::uint8,   DType::int8};

// One random collective; `random` is in the same state on every rank.
void try_one(GpuPipeline& gpu, std::mt19937& random) {
  const int rank = gpu.comm.rank, size = gpu.comm.size;
  const auto own = static_cast<std::size_t>(rank);
  const auto dtype = dtypes[random() % std::size(dtypes)];
  auto op = ops[random() % std::size(ops)];
  if (!can_reduce(op, dtype)) op = ReduceOp::sum;
  const auto seed = static_cast<unsigned>(random() % 1000);
  const bool even = random() % 2 == 0;
  const std::size_t unit = random() % 4 == 0 ? random() % 3 : random() % 20'000;
  std::vector<std::size_t> counts, bytes;
  for (int r = 0; r < size; ++r) {
    counts.push_back(even ? unit : random() % (unit + 1));
    bytes.push_back(counts.back() * size_of(dtype));
  }
  const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const auto first = std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
  const auto all_bytes = total * size_of(dtype);
  auto host_in = gpu.runtime->allocate_pinned(all_bytes), host_out = gpu.runtime->allocate_pinned(all_bytes);
  const auto what = [&] {
    return ::testing::Message() << name_of(dtype) << " " << name_of(op) << " of " << total
                                << " elements in parts of " << counts[own];
  };
  auto* const stream = gpu.work.handle();
  switch (random() % 3) {
    case 0:
      fill(host_in.get(), dtype, total, seed, rank);
      gpu.run(host_in.get(), all_bytes, host_out.get(), all_bytes, [&](std::byte* in, std::byte* out) {
        gpu.comm.allreduce("test", in, total, dtype, op, stream);
        gpu.runtime->copy(out, in, all_bytes, stream);
      });
      EXPECT_EQ(first_wrong(host_out.get(), dtype, total, reference(op, dtype, seed, size)), total) << what();
      break;
    case 1: {  // In parts of one size, in place.
      const auto count = counts.front() * static_cast<std::size_t>(size),
                 part = counts.front() * size_of(dtype);
      host_in = gpu.runtime->allocate_pinned(count * size_of(dtype));
      fill(host_in.get(), dtype, count, seed, rank);
      gpu.run(host_in.get(), count * size_of(dtype), host_out.get(), 0, [&](std::byte* in, std::byte*) {
        const DeviceReduction scattered{in, count, dtype, op, 1, /*scattered=*/true};
        gpu.comm.reduce("test", {&scattered, 1}, stream);
        gpu.runtime->copy(host_in.get(), in + own * part, part, stream);
      });
      EXPECT_EQ(first_wrong(host_in.get(), dtype, counts.front(),
                            reference(op, dtype, seed, size, own * counts.front())),
                counts.front())
          << what();
      break;
    }
    default:
      fill(host_in.get(), dtype, counts[own], seed, 0, first);
      gpu.run(host_in.get(), bytes[own], host_out.get(), all_bytes,
              [&](std::byte* in, std::byte* out) { gpu.comm.all_gather("test", in, out, bytes, stream); });
      EXPECT_EQ(first_wrong(host_out.get(), dtype, total, reference(ReduceOp::sum, dtype, seed, 1)), total)
          << what();
  }
}

class NcclRanks : public testing::TestWithParam<int> {};

TEST_P(NcclRanks, RandomCollectivesGiveTheRightResults) {
  if (real_gpus() > 0 && GetParam() > real_gpus()) GTEST_SKIP() << "there are fewer GPUs than ranks";
  const auto first = seed(11);
  expect_all_succeed(run_gpu_ranks(GetParam(), [&](GpuRank& rank) {
    SCOPED_TRACE(testing::Message() << "seed " << first << " rank " << rank.rank);
    GpuPipeline gpu(rank);
    std::mt19937 random(first);
    for (int i = 0; i < 40 && !testing::Test::HasFailure(); ++i) try_one(gpu, random);
  }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, NcclRanks, testing::Values(1, 2, 3, 5));

// The double does what a device does to a program that forgets events, so the test above means something.
TEST(NcclMutations, ResultsAreWrongWithoutTheEvents) {
  const auto ends = run_gpu_ranks(
      2,
      [](GpuRank& rank) {
        constexpr std::size_t count = 1000, bytes = 4 * count;
        std::vector<Buffer> used;  // until the streams have ended, because nobody can wait for them
        int wrong = 0;
        {
          GpuPipeline gpu(rank);
          for (int i = 0; i < 50; ++i) {
            for (int b = 0; b < 2; ++b) used.push_back(gpu.runtime->allocate_pinned(bytes));
            used.push_back(gpu.comm.allocate(bytes));
            auto* const in = used.end()[-3].get();
            auto* const out = used.end()[-2].get();
            auto* const data = used.back().get();
            fill(in, DType::float32, count, 1, rank.rank);
            gpu.runtime->copy(data, in, bytes, gpu.in.handle());
            gpu.ready.record(gpu.in.handle());
            gpu.ready.hold(gpu.work.handle());
            gpu.comm.allreduce("test", data, count, DType::float32, ReduceOp::sum, gpu.work.handle());
            gpu.reduced.record(gpu.work.handle());
            gpu.reduced.hold(gpu.out.handle());
            gpu.runtime->copy(out, data, bytes, gpu.out.handle());
            gpu.done.record(gpu.out.handle());
            gpu.comm.await(gpu.done);
          }
        }
        const auto expected = reference(ReduceOp::sum, DType::float32, 1, 2);
        for (std::size_t i = 1; i < used.size(); i += 3)
          if (first_wrong(used[i].get(), DType::float32, count, expected) != count) ++wrong;
        EXPECT_GT(wrong, 0);
      },
      {{"GPU_DOUBLE_LOSE_WAIT", "0"}});
  expect_all_succeed(ends);
}

TEST(NcclCommunicator, ALostRankEndsTheWaitOfTheOthers) {
  expect_that_others_name_a_lost_rank<GpuPipeline>();
}

TEST(NcclCommunicator, ReducesSeveralArraysTogether) {
  if (real_gpus() > 0 && real_gpus() < 3) GTEST_SKIP() << "there are fewer GPUs than ranks";
  expect_that_arrays_are_reduced_together<GpuPipeline>();
}

// New memory is ready when the device has written zeros, which waits for the collective before it.
TEST(NcclCommunicator, ALostRankEndsTheWaitForMemory) {
  const auto ends = run_gpu_ranks(2, [](GpuRank& rank) {
    GpuPipeline gpu(rank);
    if (rank.rank == 1) std::raise(SIGKILL);
    const auto memory = gpu.comm.allocate(4);
    gpu.comm.allreduce("first", memory.get(), 1, DType::float32, ReduceOp::sum, gpu.work.handle());
    gpu.comm.allocate(4);
  });
  EXPECT_EQ(ends[0].exit_code, 70);
  EXPECT_THAT(ends[0].message, HasSubstr("was lost, killed by SIGKILL"));
}

TEST(NcclCommunicator, ARankLostBeforeTheStartEndsTheWaitOfTheOthers) {
  const auto ends = run_gpu_ranks(2, [](GpuRank& rank) {
    if (rank.rank == 1) ::setenv("GPU_DOUBLE_FAIL", "ncclCommInitRankConfig:1", 1);
    const NcclCommunicator comm(rank.bootstrap, rank.runtime, rank.rank);
  });
  EXPECT_EQ(ends[1].exit_code, 1);
  EXPECT_THAT(ends[1].message, HasSubstr("ncclCommInitRankConfig: an injected NCCL error"));
  EXPECT_EQ(ends[0].exit_code, 70);
  EXPECT_THAT(ends[0].message, HasSubstr("while this rank waited in ncclCommInitRankConfig"));
}

TEST(NcclCommunicator, AnErrorOfTheNetworkEndsTheWait) {
  const auto ends = run_gpu_ranks(2,
                                  [](GpuRank& rank) {
                                    GpuPipeline gpu(rank);
                                    gpu.allreduce_once("first");
                                    gpu.allreduce_once("second");
                                  },
                                  {{"GPU_DOUBLE_ASYNC_ERROR", "2"}});
  for (const auto& end : ends) {
    EXPECT_EQ(end.exit_code, 70);
    // The rank that ends first is lost for the other one.
    EXPECT_THAT(end.message,
                testing::AnyOf(AllOf(HasSubstr("'second'"), HasSubstr(": remote process exited")),
                               HasSubstr("was lost")));
  }
}

TEST(NcclCommunicator, EveryCallThatFailsIsNamed) {
  for (const std::string name : {"cudaGetDeviceProperties",
                                 "cudaSetDevice",
                                 "cudaHostAlloc",
                                 "cudaMemset",
                                 "cudaDeviceSynchronize",
                                 "cudaMemcpyAsync",
                                 "cudaDeviceGetStreamPriorityRange",
                                 "cudaStreamCreateWithPriority",
                                 "cudaStreamWaitEvent",
                                 "cudaEventCreateWithFlags",
                                 "cudaEventRecord",
                                 "cudaEventQuery",
                                 "ncclGetUniqueId",
                                 "ncclCommInitRankConfig",
                                 "ncclMemAlloc",
                                 "ncclCommRegister",
                                 "ncclCommGetAsyncError",
                                 "ncclGroupStart",
                                 "ncclGroupEnd",
                                 "ncclAllReduce",
                                 "ncclAllGather",
                                 "ncclReduceScatter",
                                 "ncclRedOpCreatePreMulSum",
                                 "ncclRedOpDestroy"}) {
    const auto ends =
        run_gpu_ranks(1,
                      [](GpuRank& rank) {
                        std::mt19937 random(3);
                        GpuPipeline gpu(rank);
                        for (int i = 0; i < 60; ++i) try_one(gpu, random);
                        const auto memory = gpu.comm.allocate(4);
                        const DeviceReduction one{memory.get(), 1, DType::float32, ReduceOp::sum, 0.5};
                        gpu.comm.reduce("last", std::array{one, one}, gpu.work.handle());
                      },
                      {{"GPU_DOUBLE_FAIL", name + ":1"}});
    EXPECT_EQ(ends[0].exit_code, 1) << name;
    const auto named = name == "ncclCommGetAsyncError" ? "ncclCommInitRankConfig"  // which has not ended
                                                       : name;
    EXPECT_THAT(ends[0].message, HasSubstr(named)) << name;
    EXPECT_THAT(ends[0].message, HasSubstr("an injected")) << name;
  }
}

// Only parts of different sizes are gathered one by one.
TEST(NcclCommunicator, AGatheredPartThatFailsIsNamed) {
  const auto ends = run_gpu_ranks(2,
                                  [](GpuRank& rank) {
                                    GpuPipeline gpu(rank);
                                    const auto in = gpu.comm.allocate(8), out = gpu.comm.allocate(12);
                                    gpu.comm.all_gather("parts", in.get(), out.get(),
                                                        std::array<std::size_t, 2>{4, 8}, gpu.work.handle());
                                  },
                                  {{"GPU_DOUBLE_FAIL", "ncclBroadcast:1"}});
  for (const auto& end : ends) {
    EXPECT_EQ(end.exit_code, 1);
    EXPECT_EQ(end.message, "ncclBroadcast of 'parts': an injected NCCL error");
  }
}

TEST(NcclCommunicator, RefusesTwoRanksOnOneGpu) {
  const auto ends = run_gpu_ranks(3, [](GpuRank& rank) {
    const NcclCommunicator comm(rank.bootstrap, rank.runtime, rank.rank == 2 ? 0 : rank.rank);
  });
  for (const auto& end : ends) {
    EXPECT_EQ(end.exit_code, 64);
    EXPECT_THAT(end.message,
                HasSubstr("ranks 0 and 2 use the same GPU (GPU-00000000-0000-0000-0000-000000000000)"));
  }
}

TEST(NcclCommunicator, RefusesReductionsThatDoNotExist) {
  expect_all_succeed(run_gpu_ranks(1, [](GpuRank& rank) {
    GpuPipeline gpu(rank);
    const auto memory = gpu.comm.allocate(8);
    EXPECT_THROW(
        gpu.comm.allreduce("test", memory.get(), 1, DType::int32, ReduceOp::average, gpu.work.handle()),
        UserError);
    EXPECT_THROW(
        gpu.comm.allreduce("test", memory.get(), 1, DType::boolean, ReduceOp::sum, gpu.work.handle()),
        UserError);
    EXPECT_THROW(gpu.comm.allreduce("test", memory.get(), 1, DType::int16, ReduceOp::sum, gpu.work.handle()),
                 UserError);
  }));
}

TEST(NcclCommunicator, MultipliesBeforeItSums) {
  const auto ranks = real_gpus() > 0 ? std::min(real_gpus(), 3) : 3;
  expect_all_succeed(run_gpu_ranks(ranks, [](GpuRank& rank) {
    GpuPipeline gpu(rank);
    constexpr std::size_t count = 1000;
    for (const auto dtype : {DType::float32, DType::float64})
      for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
        const auto bytes = count * size_of(dtype);
        const auto in = gpu.runtime->allocate_pinned(bytes), out = gpu.runtime->allocate_pinned(bytes);
        for (std::size_t i = 0; i < count; ++i)
          store(in.get(), dtype, i, static_cast<double>(i) * (rank.rank + 1));
        gpu.run(in.get(), bytes, out.get(), bytes, [&](std::byte* data, std::byte* result) {
          gpu.comm.allreduce("test", data, count, dtype, op, 0x1p-9, gpu.work.handle());
          gpu.runtime->copy(result, data, bytes, gpu.work.handle());
        });
        double all = 0;
        for (int r = 0; r < rank.size; ++r) all += (r + 1) * 0x1p-9;
        if (op == ReduceOp::average) all /= rank.size;
        for (std::size_t i = 0; i < count; ++i)
          EXPECT_NEAR(load(out.get(), dtype, i), static_cast<double>(i) * all, 1e-5 * static_cast<double>(i));
      }
    const auto memory = gpu.comm.allocate(8);
    EXPECT_THROW(
        gpu.comm.allreduce("test", memory.get(), 1, DType::bfloat16, ReduceOp::sum, 0.5, gpu.work.handle()),
        UserError);
    EXPECT_THROW(
        gpu.comm.allreduce("test", memory.get(), 1, DType::float32, ReduceOp::max, 0.5, gpu.work.handle()),
        UserError);
  }));
}

// The watchdog reads the registry. Rank 1 comes only when rank 0 has been seen waiting: at first in
// the call, because NCCL connects ranks when they first need it, and later behind the call, where only
// the device waits.
TEST(NcclCommunicator, TheRegistryShowsTheCollectiveInFlight) {
  const auto ranks = real_gpus() == 1 ? 1 : 2;
  if (ranks == 1) GTEST_SKIP() << "there is one GPU only";
  expect_all_succeed(run_gpu_ranks(ranks, [](GpuRank& rank) {
    CollectiveRegistry registry;
    GpuPipeline gpu(rank, {.number = 9, .registry = &registry});
    const auto status = [&] { return registry.read().at(0); };
    const auto memory = gpu.comm.allocate(8);
    for (const int turn : {1, 2, 3}) {
      const bool other = turn == 3;  // another kind, which must be connected, too
      const auto name = "bucket " + std::to_string(turn);
      std::thread watchdog([&] {
        if (rank.rank == 1) return;
        while (!status().in_flight || status().name != name) std::this_thread::yield();
        EXPECT_EQ(status().communicator, 9);
        EXPECT_EQ(status().operation, other ? "all_gather" : "allreduce");
        EXPECT_EQ(status().bytes, 8u);
        rank.shared = turn;
      });
      while (rank.rank == 1 && rank.shared < turn) std::this_thread::yield();
      if (other)
        gpu.comm.all_gather(name, memory.get() + 4 * rank.rank, memory.get(),
                            std::array<std::size_t, 2>{4, 4}, gpu.work.handle());
      else
        gpu.comm.allreduce(name, memory.get(), 2, DType::float32, ReduceOp::sum, gpu.work.handle());
      gpu.done.record(gpu.work.handle());
      gpu.comm.await(gpu.done);
      watchdog.join();
    }
    while (status().in_flight || status().entered < 4) std::this_thread::yield();
    EXPECT_EQ(status().entered, 4u);  // The start of NCCL is the first one.
  }));
}

// The device may be behind: it has not ended the collective before the one in which this rank waits.
TEST(NcclCommunicator, TheRegistryShowsACallBehindCollectivesThatHaveEnded) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double has streams that stand still";
  expect_all_succeed(run_gpu_ranks(2, [](GpuRank& rank) {
    CollectiveRegistry registry;
    GpuPipeline gpu(rank, {.registry = &registry});
    const auto memory = gpu.comm.allocate(8);
    auto& pause = of_double<void(bool)>("gpu_double_pause");
    if (rank.rank == 0) pause(true);
    gpu.comm.allreduce("first", memory.get(), 2, DType::float32, ReduceOp::sum, gpu.work.handle());
    std::thread watchdog([&] {
      if (rank.rank == 1) return;
      while (registry.read().at(0).name != "first") std::this_thread::yield();
      pause(false);
      while (registry.read().at(0).name != "second") std::this_thread::yield();
      EXPECT_TRUE(registry.read().at(0).in_flight);
      rank.shared = 1;
    });
    while (rank.rank == 1 && rank.shared == 0) std::this_thread::yield();
    gpu.comm.all_gather("second", memory.get() + 4 * rank.rank, memory.get(),
                        std::array<std::size_t, 2>{4, 4}, gpu.work.handle());
    gpu.done.record(gpu.work.handle());
    gpu.comm.await(gpu.done);
    watchdog.join();
  }));
}

TEST(NcclCommunicator, TellsWhichCollectiveItLaunches) {
  expect_all_succeed(run_gpu_ranks(1, [](GpuRank& rank) {
    CollectiveLaunches launches;
    GpuPipeline gpu(rank, {.launches = &launches});
    const auto memory = gpu.comm.allocate(8);
    const auto before = now_ns();
    gpu.comm.allreduce("bucket 5", memory.get(), 2, DType::float32, ReduceOp::sum, gpu.work.handle());
    const auto after = now_ns();
    EXPECT_EQ(launches.at(before - 1), std::nullopt);
    EXPECT_EQ(launches.at(after + 1), std::nullopt);
    bool found = false;
    for (auto at = before; at <= after; ++at) found = found || launches.at(at) == "bucket 5";
    EXPECT_TRUE(found);
    gpu.done.record(gpu.work.handle());
    gpu.comm.await(gpu.done);
  }));
}

TEST(NcclCommunicator, MemoryMayOutliveIt) {
  expect_all_succeed(run_gpu_ranks(2, [](GpuRank& rank) {
    Buffer memory;
    {
      NcclCommunicator comm(rank.bootstrap, rank.runtime, rank.rank);
      memory = comm.allocate(100);
    }
    memory.reset();
  }));
}

// NCCL ends a communicator when no rank has work left, so it waits for a rank that stays in something else.
TEST(NcclCommunicator, ItsEndDoesNotWaitForOthersForever) {
  expect_all_succeed(run_gpu_ranks(2, [](GpuRank& rank) {
    auto gpu = std::make_optional<GpuPipeline>(rank);
    gpu->allreduce_once("first");
    while (rank.rank == 1 && rank.shared == 0) std::this_thread::yield();
    gpu.reset();
    rank.shared = 1;
  }));
}

TEST(NcclCommunicator, AnEndThatFailsIsNoError) {
  expect_all_succeed(run_gpu_ranks(1, [](GpuRank& rank) { GpuPipeline(rank).allreduce_once("first"); },
                                   {{"GPU_DOUBLE_FAIL", "ncclCommFinalize:1"}}));
}

// The next one who asks for the error of a kernel, such as LibTorch, would get it.
TEST(GpuRuntime, AnEventThatIsNotReachedIsNoError) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double has streams that stand still";
  expect_all_succeed(run_gpu_ranks(1, [](GpuRank& rank) {
    auto& pause = of_double<void(bool)>("gpu_double_pause");
    const GpuStream stream(rank.runtime);
    GpuEvent event(rank.runtime);
    pause(true);
    event.record(stream.handle());
    EXPECT_FALSE(event.reached());
    pause(false);
    EXPECT_EQ(rank.runtime->functions().get_last_error(), cudaSuccess);
    while (!event.reached()) std::this_thread::yield();
  }));
}

TEST(GpuRuntime, SaysWhyThereIsNoGpu) {
  const auto why_not = [](const std::map<std::string, std::string>& environment) {
    return run_gpu_ranks(
               1, [](GpuRank&) {}, environment)
        .front()
        .message;
  };
  EXPECT_THAT(
      why_not({{"FARANDOLE_CUDA_LIBRARY", "/proc/nowhere/libcudart.so"}}),
      AllOf(HasSubstr("/proc/nowhere/libcudart.so cannot be loaded"), HasSubstr("FARANDOLE_CUDA_LIBRARY")));
  EXPECT_THAT(why_not({{"FARANDOLE_CUDA_LIBRARY", "libm.so.6"}}),
              HasSubstr("libm.so.6 has no cudaGetDeviceCount"));
  EXPECT_THAT(why_not({{"GPU_DOUBLE_DEVICES", "0"}}), HasSubstr("no GPU is visible"));
  EXPECT_THAT(why_not({{"GPU_DOUBLE_FAIL", "cudaGetDeviceCount:1"}}), HasSubstr("no CUDA-capable device"));
}

TEST(GpuRuntime, SaysWhichGpusAGpuReaches) {
  if (real_gpus() > 0) GTEST_SKIP() << "real GPUs have other names";
  const auto topology = [](const char* devices) {
    return run_gpu_ranks(1, [](GpuRank& rank) { throw Error(rank.runtime->topology(0)); },
                         {{"GPU_DOUBLE_DEVICES", devices}})
        .front()
        .message;
  };
  EXPECT_EQ(topology("1"), "Test double at 0000:1b:00, no other visible GPU");
  EXPECT_EQ(topology("3"), "Test double at 0000:1b:00, direct access to GPU 1 of 3 visible GPUs");
}

TEST(NcclCommunicator, SaysWhyNcclIsMissing) {
  const auto ends =
      run_gpu_ranks(1, [](GpuRank& rank) { const NcclCommunicator comm(rank.bootstrap, rank.runtime, 0); },
                    {{"FARANDOLE_NCCL_LIBRARY", "libm.so.6"}});
  EXPECT_EQ(ends[0].exit_code, 64);
  EXPECT_THAT(ends[0].message, HasSubstr("libm.so.6 has no ncclGetVersion"));
}

}  // namespace
}  // namespace farandole

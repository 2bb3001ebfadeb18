// Ranks as forked processes that use the test doubles of CUDA and NCCL (gpu/double/). tests/gpu/run sets
// FARANDOLE_TEST_GPUS to the number of real GPUs, which are used instead.
#pragma once

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "comm/fork_world.h"
#include "hang.h"

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/process/process_state.h"
#include "farandole/comm/gpu/device_communicator.h"
#include "farandole/comm/gpu/gpu_runtime.h"

namespace farandole {

struct GpuRank {
  ForkWorld::Exchange& bootstrap;
  std::shared_ptr<const GpuRuntime> runtime;
  const int rank, size;
  std::atomic<int>& shared;  // of all ranks, at first 0
};

struct GpuEnd {
  int exit_code = -1;   // -1: killed
  std::string message;  // of the exception, or which signal killed the rank
};

inline int real_gpus() {
  const char* const count = std::getenv("FARANDOLE_TEST_GPUS");
  return count != nullptr ? std::atoi(count) : 0;
}

// A function of the double beside those of CUDA (gpu/double/streams.h).
template <class Function>
Function& of_double(const char* name) {
  void* const library = ::dlopen(FARANDOLE_GPU_DOUBLE, RTLD_NOW);
  auto* const function = library != nullptr ? ::dlsym(library, name) : nullptr;
  if (function == nullptr) throw Error(std::string("the double of CUDA has no ") + name);
  return *reinterpret_cast<Function*>(function);
}

// Pieces of work that use the same memory without order; real GPUs do not count them.
inline int races() {
  return real_gpus() == 0 ? of_double<int()>("gpu_double_races")() : 0;
}

// Runs `body` on each rank, with these environment variables in addition. Returns how each rank ended: with
// 0, with 1 after a failed check or an exception, or with the exit code of an Error. Work without order is a
// failed check, unless the double leaves out waits for events.
inline std::vector<GpuEnd> run_gpu_ranks(int size, const std::function<void(GpuRank&)>& body,
                                         const std::map<std::string, std::string>& environment = {}) {
  struct Page {
    std::atomic<int> shared{0};
    char message[ForkWorld::most_ranks][512] = {};
  };
  void* const memory =
      ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* const page = new (memory) Page;
  ForkWorld world(size);
  const OwnedDescriptor order(
      ::memfd_create("order", 0));  // of what several processes do with the same memory
  if (order.get() < 0 || ::ftruncate(order.get(), 16 << 20) != 0) throw std::bad_alloc();
  std::fflush(stdout);
  const auto run = [&](int rank) {
    end_if_it_hangs(120);
    if (real_gpus() == 0) {
      ::setenv("FARANDOLE_CUDA_LIBRARY", FARANDOLE_GPU_DOUBLE, 1);
      ::setenv("FARANDOLE_NCCL_LIBRARY", FARANDOLE_GPU_DOUBLE, 1);
      ::setenv("GPU_DOUBLE_SHARED", std::to_string(order.get()).c_str(), 1);
    }
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    int code = 0;
    try {
      ForkWorld::Exchange bootstrap(world, rank);
      std::string why_not;
      GpuRank own{bootstrap, GpuRuntime::load(why_not), rank, size, page->shared};
      if (own.runtime == nullptr) throw UserError(why_not);
      body(own);
      if (!environment.contains("GPU_DOUBLE_LOSE_WAIT")) {
        EXPECT_EQ(races(), 0);
      }
      // A rank that ends while others are in a collective is lost for them.
      const std::vector<std::size_t> nothing(static_cast<std::size_t>(size));
      char token = 0;
      bootstrap.all_gather("end", &token, &token, nothing);
    } catch (const Error& error) {
      code = static_cast<int>(error.exit_code());
      std::strncpy(page->message[rank], error.what(), sizeof page->message[rank] - 1);
    }
    std::fflush(stdout);
    ::_exit(code == 0 && testing::Test::HasFailure() ? 1 : code);
  };
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    pids.push_back(::fork());
    if (pids.back() == 0) run(rank);
  }
  std::vector<GpuEnd> ends;
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    ::waitpid(pids[static_cast<std::size_t>(rank)], &status, 0);
    if (WIFEXITED(status))
      ends.push_back({WEXITSTATUS(status), page->message[rank]});
    else
      ends.push_back({-1, describe_end(status)});
  }
  ::munmap(memory, sizeof(Page));
  return ends;
}

inline void expect_all_succeed(const std::vector<GpuEnd>& ends) {
  for (std::size_t r = 0; r < ends.size(); ++r)
    EXPECT_EQ(ends[r].exit_code, 0) << "rank " << r << ": " << ends[r].message;
}

// A rank that is lost ends the wait of the others, who name it. `Pipeline` runs collectives on the GPU
// of a rank.
template <class Pipeline>
void expect_that_others_name_a_lost_rank() {
  const auto ends = run_gpu_ranks(3, [](GpuRank& rank) {
    Pipeline gpu(rank, {.world_ranks = {10, 11, 12}});
    gpu.allreduce_once("first");
    std::byte token{}, tokens[3];
    rank.bootstrap.all_gather("all know that the first is complete", &token, tokens,
                              std::array<std::size_t, 3>{1, 1, 1});
    if (rank.rank == 1) std::raise(SIGKILL);
    gpu.allreduce_once("bucket 7");
  });
  EXPECT_EQ(ends[1].exit_code, -1);
  for (const std::size_t other : {0, 2}) {
    EXPECT_EQ(ends[other].exit_code, 70);
    EXPECT_THAT(
        ends[other].message,
        testing::AllOf(testing::HasSubstr("rank 11 (pid "), testing::HasSubstr("was lost, killed by SIGKILL"),
                       testing::HasSubstr("while this rank waited in "), testing::HasSubstr("'bucket 7'")));
  }
}

// A sum of which each rank gets its part, and a small reduction, as one collective.
template <class Pipeline>
void expect_that_arrays_are_reduced_together() {
  expect_all_succeed(run_gpu_ranks(3, [](GpuRank& rank) {
    constexpr std::size_t part = 5000, count = 3 * part, bytes = 4 * count + 8;
    Pipeline gpu(rank);
    const auto host = gpu.runtime->allocate_pinned(bytes), device = gpu.comm.allocate(bytes);
    auto* const values = reinterpret_cast<float*>(host.get());
    auto* const least = reinterpret_cast<std::int64_t*>(host.get() + 4 * count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(static_cast<int>(i % 100) + rank.rank);
    *least = 7 - rank.rank;
    auto* const stream = gpu.work.handle();
    gpu.runtime->copy(device.get(), host.get(), bytes, stream);
    gpu.comm.reduce(
        "together",
        std::array{DeviceReduction{device.get(), count, DType::float32, ReduceOp::average, 0.5, true},
                   DeviceReduction{device.get() + 4 * count, 1, DType::int64, ReduceOp::min}},
        stream);
    gpu.runtime->copy(host.get(), device.get(), bytes, stream);
    gpu.done.record(stream);
    gpu.comm.await(gpu.done);
    EXPECT_EQ(*least, 5);
    for (std::size_t i = part * static_cast<std::size_t>(rank.rank);
         i < part * static_cast<std::size_t>(rank.rank + 1); ++i)
      ASSERT_FLOAT_EQ(values[i], 0.5F * static_cast<float>(i % 100 + 1)) << i;
  }));
}

}  // namespace farandole

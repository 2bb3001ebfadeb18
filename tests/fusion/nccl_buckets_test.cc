// Buckets on a device. The ranks are processes with the test doubles of CUDA and NCCL.
#include "farandole/fusion/nccl_buckets.h"

#include <csignal>
#include <cstring>
#include <gmock/gmock.h>
#include <random>
#include <thread>

#include "comm/gpu_world.h"
#include "lane.h"

#include "farandole/fusion/gradient_reducer.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A rank whose backward runs on two streams: a gradient is copied into its bucket on one of them.
struct DeviceRank {
  DeviceRank(GpuRank& rank, std::size_t tensors, std::function<bool()> stop_requested = {})
      : runtime(rank.runtime),
        backward{std::make_unique<GpuStream>(runtime), std::make_unique<GpuStream>(runtime)},
        device(make_nccl_buckets(rank.bootstrap, {runtime, rank.rank, [this] { return current; }}, {})),
        reducer(rank.bootstrap, plan(tensors), ReduceOp::average, timeline, nullptr,
                std::move(stop_requested), device.get()) {
    use_stream(0);
    for (std::size_t i = 0; i < tensors; ++i)
      gradients.push_back(runtime->allocate_pinned(reducer.plan().tensors[i].bytes()));
  }

  static BucketPlan plan(std::size_t tensors) {
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < tensors; ++i)
      specs.push_back({"t" + std::to_string(i),
                       {static_cast<std::int64_t>(i % 7 * 500 + 1)},
                       i % 5 == 0 ? DType::float64 : DType::float32});
    return plan_buckets(std::move(specs), {10'000, 5'000});
  }

  void use_stream(std::size_t i) { current = backward[i]->handle(); }

  void produce(std::size_t tensor, double value) {
    const auto& spec = reducer.plan().tensors[tensor];
    for (std::size_t i = 0; i < spec.count(); ++i) {
      auto* const at = gradients[tensor].get() + i * size_of(spec.dtype);
      const auto single = static_cast<float>(value);
      if (spec.dtype == DType::float32) std::memcpy(at, &single, sizeof single);
      if (spec.dtype == DType::float64) std::memcpy(at, &value, sizeof value);
    }
    runtime->copy(reducer.data(tensor), gradients[tensor].get(), spec.bytes(), current);
    reducer.mark_ready(tensor);
  }

  bool has_all(std::size_t tensor, double value) {
    const auto& spec = reducer.plan().tensors[tensor];
    const auto host = runtime->allocate_pinned(spec.bytes());
    GpuEvent copied(runtime);
    runtime->copy(host.get(), reducer.data(tensor), spec.bytes(), current);
    copied.record(current);
    while (!copied.reached()) std::this_thread::yield();
    for (std::size_t i = 0; i < spec.count(); ++i) {
      const auto* const at = host.get() + i * size_of(spec.dtype);
      float single = 0;
      double whole = 0;
      if (spec.dtype == DType::float32) std::memcpy(&single, at, sizeof single), whole = single;
      if (spec.dtype == DType::float64) std::memcpy(&whole, at, sizeof whole);
      if (std::abs(whole - value) > 1e-5 * std::abs(value)) return false;
    }
    return true;
  }

  std::shared_ptr<const GpuRuntime> runtime;
  std::unique_ptr<GpuStream> backward[2];
  CUstream_st* current = nullptr;
  std::vector<Buffer> gradients;
  Timeline timeline;
  std::unique_ptr<BucketDevice> device;
  GradientReducer reducer;
};

double gradient(int rank, int step, std::size_t tensor) {
  return 1 + rank + 10 * step + 0.5 * static_cast<double>(tensor);
}

// Gradients come in another order on each rank and step, on either stream, and some are absent. Returns the number of
// gradients that were reduced to wrong values.
int train(GpuRank& rank, unsigned seed, std::size_t tensors, int steps) {
  int step = 0, wrong = 0;
  DeviceRank own(rank, tensors, [&] { return rank.rank == rank.size - 1 && step % 3 == 2; });
  const auto has = [&](int r, std::size_t tensor) {
    return std::mt19937(seed + static_cast<unsigned>(r * 100 + step * 31) +
                        static_cast<unsigned>(tensor) * 7u)() %
               4 !=
           0;
  };
  std::mt19937 random(seed + static_cast<unsigned>(rank.rank));
  for (; step < steps; ++step) {
    std::vector<std::size_t> order(tensors);
    for (std::size_t i = 0; i < tensors; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (const auto tensor : order) {
      own.use_stream(random() % 2);
      if (has(rank.rank, tensor)) own.produce(tensor, gradient(rank.rank, step, tensor));
    }
    own.reducer.finish();
    EXPECT_EQ(own.reducer.stopping(), step % 3 == 2) << step;
    for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
      double sum = 0;
      bool present = false;
      for (int r = 0; r < rank.size; ++r)
        if (has(r, tensor)) sum += gradient(r, step, tensor), present = true;
      EXPECT_EQ(own.reducer.present(tensor), present);
      if (!own.has_all(tensor, sum / rank.size)) ++wrong;
    }
  }
  return wrong;
}

TEST(NcclBuckets, RandomOrdersStreamsAndAbsentGradients) {
  const auto first = seed(11);
  for (const int ranks : {1, 2, 4}) {
    if (real_gpus() > 0 && ranks > real_gpus()) break;
    expect_all_succeed(run_gpu_ranks(ranks, [&](GpuRank& rank) {
      SCOPED_TRACE(testing::Message() << "seed " << first);
      EXPECT_EQ(train(rank, first, 23, 6), 0);
    }));
  }
}

// If the reduction did not wait for backward, the test above would fail.
TEST(NcclBuckets, TheReductionMustWaitForBackward) {
  expect_all_succeed(run_gpu_ranks(2, [](GpuRank& rank) { EXPECT_GT(train(rank, 1, 23, 10), 0); },
                                   {{"GPU_DOUBLE_LOSE_WAIT", "0"}}));
}

TEST(NcclBuckets, ALostRankEndsTheWaitForGradients) {
  const auto ends = run_gpu_ranks(3, [](GpuRank& rank) {
    DeviceRank own(rank, 9);
    for (int step = 0; step < 3; ++step) {
      if (rank.rank == 2 && step == 1) std::raise(SIGKILL);
      for (std::size_t i = 0; i < 9; ++i) own.produce(i, 1);
      own.reducer.finish();
    }
  });
  EXPECT_EQ(ends[2].exit_code, -1);
  for (const int other : {0, 1}) {
    const auto& end = ends[static_cast<std::size_t>(other)];
    EXPECT_EQ(end.exit_code, 70);
    EXPECT_THAT(end.message,
                AllOf(HasSubstr("rank 2 "), HasSubstr("killed by SIGKILL"), HasSubstr("'bucket ")));
  }
}

// Memory of buckets that are still being reduced must not be freed; the double would use it.
TEST(NcclBuckets, EndsWithoutFinish) {
  expect_all_succeed(run_gpu_ranks(2, [](GpuRank& rank) {
    DeviceRank own(rank, 9);
    for (std::size_t i = 9; i-- > 0;) own.produce(i, 1);
  }));
}

}  // namespace
}  // namespace farandole

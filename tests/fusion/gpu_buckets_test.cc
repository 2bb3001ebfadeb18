// Buckets on a device, with NCCL and with ranks that share GPUs. The ranks are processes with the test
// doubles of CUDA and NCCL. The double counts work that uses the same memory without order as a failure.
#include "farandole/fusion/gpu_buckets.h"

#include <csignal>
#include <cstring>
#include <gmock/gmock.h>
#include <limits>
#include <random>
#include <thread>

#include "comm/gpu_world.h"
#include "lane.h"

#include "farandole/fusion/device_reducer.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Divided: each rank gets its part of the sums.
enum class Gpus { one_each, shared, one_each_divided, shared_divided };
bool are_shared(Gpus gpus) {
  return gpus == Gpus::shared || gpus == Gpus::shared_divided;
}
bool divide(Gpus gpus) {
  return gpus == Gpus::one_each_divided || gpus == Gpus::shared_divided;
}

// A rank whose backward runs on two streams. A gradient is copied on one of them into its bucket, or into
// other memory of the device, from which the reducer packs it.
struct DeviceRank {
  DeviceRank(GpuRank& rank, Gpus gpus, std::size_t tensors, std::function<bool()> stop_requested = {})
      : runtime(rank.runtime),
        backward{std::make_unique<GpuStream>(runtime), std::make_unique<GpuStream>(runtime)},
        updated(runtime),
        device(make_gpu_buckets(
            rank.bootstrap,
            {runtime, are_shared(gpus) ? 0 : rank.rank, [this] { return current; }, are_shared(gpus)},
            {.registry = &calls}, FindNonfinite::yes)),
        divided(divide(gpus)),
        reducer(*device, plan(tensors), ReduceOp::average, timeline, std::move(stop_requested),
                divided ? Divided::yes : Divided::no) {
    use_stream(0);
    one = runtime->allocate_pinned(sizeof(double));
    *reinterpret_cast<double*>(one.get()) = 1;
    for (std::size_t i = 0; i < tensors; ++i) {
      const auto bytes = spec(i).bytes();
      for (auto& set : computed) set.push_back(runtime->allocate_pinned(bytes));
      elsewhere.push_back(runtime->allocate(bytes));
    }
  }

  static BucketPlan plan(std::size_t tensors) {
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < tensors; ++i)
      specs.push_back({"t" + std::to_string(i),
                       {static_cast<std::int64_t>(i % 7 * 500 + 1)},
                       i % 5 == 0 ? DType::float64 : DType::float32});
    return plan_buckets(std::move(specs), {10'000, 5'000});
  }

  const TensorSpec& spec(std::size_t tensor) const { return reducer.plan().tensors[tensor]; }
  void use_stream(std::size_t i) { current = backward[i]->handle(); }

  // Updates run on stream 0. As in LibTorch, the other stream of backward comes after them.
  void begin_step() {
    if (steps++ == 0) return;
    updated.record(backward[0]->handle());
    updated.hold(backward[1]->handle());
  }

  enum class Where { in_bucket, elsewhere };
  void produce(std::size_t tensor, double value, Where where) {
    auto* const at = computed[steps % 2][tensor].get();
    for (std::size_t i = 0; i < spec(tensor).count(); ++i) {
      const auto single = static_cast<float>(value);
      if (spec(tensor).dtype == DType::float32) std::memcpy(at + 4 * i, &single, sizeof single);
      if (spec(tensor).dtype == DType::float64) std::memcpy(at + 8 * i, &value, sizeof value);
    }
    auto* const to = where == Where::in_bucket ? reducer.data(tensor) : elsewhere[tensor].get();
    runtime->copy(to, at, spec(tensor).bytes(), current);
    if (where == Where::in_bucket)
      reducer.mark_ready(tensor);
    else
      reducer.mark_ready_elsewhere(tensor, to);
  }
  // In the order of the plan, on both streams in turn, packed or not.
  void produce_all(double value) {
    int i = 0;
    for (const auto& bucket : reducer.plan().buckets)
      for (const auto& slot : bucket.slots) {
        use_stream(static_cast<std::size_t>(i % 2));
        produce(slot.tensor, value, i++ % 3 == 0 ? Where::in_bucket : Where::elsewhere);
      }
  }

  // What an update sees: the gradients, and whether it is left out.
  struct Seen {
    std::vector<Buffer> gradients, left_out;  // by tensor; by bucket
    std::vector<Buffer> gathered;             // by tensor, if they were divided
    Buffer sum;
    std::vector<bool> present;
  };
  // Runs on stream 0 whatever the device has come to.
  Seen finish() {
    use_stream(0);
    Seen seen;
    seen.gradients.resize(reducer.plan().tensors.size());
    reducer.finish([&](std::size_t b) {
      for (const auto& slot : reducer.plan().buckets[b].slots)
        seen.gradients[slot.tensor] = copied(reducer.data(slot.tensor), spec(slot.tensor).bytes());
      seen.left_out.push_back(copied(reducer.found_nonfinite(b), sizeof(float)));
      if (divided) change_and_gather(seen, b);
    });
    if (divided) {
      device->hold();
      for (std::size_t i = 0; i < seen.gradients.size(); ++i)
        seen.gathered.push_back(copied(reducer.data(i), spec(i).bytes()));
      runtime->copy(device->number(), one.get(), sizeof(double), current);
      device->sum_over_ranks("ones");
      seen.sum = copied(device->number(), sizeof(double));
    }
    for (std::size_t i = 0; i < seen.gradients.size(); ++i) seen.present.push_back(reducer.present(i));
    return seen;
  }

  void wait() {
    GpuEvent end(runtime);
    end.record(backward[0]->handle());
    while (!end.reached()) std::this_thread::yield();
  }

  // As an update does, with the numbers that are there.
  void change_and_gather(const Seen& seen, std::size_t bucket) {
    for (const auto& slot : reducer.plan().buckets[bucket].slots) {
      const auto [first, last] = own_part(bucket, slot);
      const auto element = size_of(spec(slot.tensor).dtype);
      if (first < last)
        runtime->copy(reducer.data(slot.tensor) + first * element,
                      seen.gradients[slot.tensor].get() + first * element, (last - first) * element, current);
    }
    const auto& its = reducer.plan().buckets[bucket];
    const auto element = size_of(its.dtype);
    device->gather("parameters of bucket", reducer.data(its.slots.front().tensor),
                   device->part_of(its.payload, element) * element);
  }
  // Elements of the tensor.
  std::pair<std::size_t, std::size_t> own_part(std::size_t bucket, const BucketSlot& slot) const {
    const auto [first, last] = reducer.own_part(bucket);
    const auto inside = [&](std::size_t i) {
      return std::clamp(i, slot.offset, slot.offset + slot.count) - slot.offset;
    };
    return {inside(first), inside(last)};
  }

  bool has_all(const Seen& seen, std::size_t tensor, double value) const {
    for (std::size_t b = 0; b < reducer.plan().buckets.size(); ++b)
      for (const auto& slot : reducer.plan().buckets[b].slots) {
        if (slot.tensor != tensor) continue;
        const auto [first, last] = own_part(b, slot);
        if (!has_all(seen.gradients[tensor], first, last, tensor, value)) return false;
      }
    return !divided || (*reinterpret_cast<const double*>(seen.sum.get()) == device->size() &&
                        has_all(seen.gathered[tensor], 0, spec(tensor).count(), tensor, value));
  }
  bool has_all(const Buffer& gradient, std::size_t first, std::size_t last, std::size_t tensor,
               double value) const {
    const auto* const at = gradient.get();
    for (std::size_t i = first; i < last; ++i) {
      float single = 0;
      double whole = 0;
      if (spec(tensor).dtype == DType::float32) {
        std::memcpy(&single, at + 4 * i, sizeof single);
        whole = single;
      } else {
        std::memcpy(&whole, at + 8 * i, sizeof whole);
      }
      if (!(std::abs(whole - value) <= 1e-5 * std::abs(value))) return false;
    }
    return true;
  }
  static std::vector<float> left_out(const Seen& seen) {
    std::vector<float> values;
    for (const auto& value : seen.left_out) values.push_back(*reinterpret_cast<const float*>(value.get()));
    return values;
  }

  Buffer copied(const void* from, std::size_t bytes) const {
    auto host = runtime->allocate_pinned(bytes);
    runtime->copy(host.get(), from, bytes, current);
    return host;
  }

  CollectiveRegistry calls;
  std::shared_ptr<const GpuRuntime> runtime;
  std::unique_ptr<GpuStream> backward[2];
  CUstream_st* current = nullptr;
  GpuEvent updated;
  int steps = 0;
  std::vector<Buffer> computed[2], elsewhere;  // of the host, by turn; of the device
  Timeline timeline;
  std::unique_ptr<BucketDevice> device;
  const bool divided;
  DeviceReducer reducer;
  Buffer one;  // the number, in memory of the host
};

using Where = DeviceRank::Where;

double gradient(int rank, int step, std::size_t tensor) {
  return 1 + rank + 10 * step + 0.5 * static_cast<double>(tensor);
}

// Gradients come in another order on each rank and step, on either stream, and some are absent. In some
// steps, all ranks have all gradients, so that the host runs ahead of the device.
void train(GpuRank& rank, Gpus gpus, unsigned seed, std::size_t tensors, int steps) {
  int step = 0;
  DeviceRank own(rank, gpus, tensors, [&] { return rank.rank == rank.size - 1 && step % 3 == 2; });
  const auto has = [&](int r, int s, std::size_t tensor) {
    return s % 2 == 1 || std::mt19937(seed + static_cast<unsigned>(r * 100 + s * 31) +
                                      static_cast<unsigned>(tensor) * 7u)() %
                                 4 !=
                             0;
  };
  std::mt19937 random(seed + static_cast<unsigned>(rank.rank));
  std::vector<DeviceRank::Seen> seen;
  for (; step < steps; ++step) {
    std::vector<std::size_t> order(tensors);
    for (std::size_t i = 0; i < tensors; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    own.begin_step();
    for (const auto tensor : order) {
      own.use_stream(random() % 2);
      if (has(rank.rank, step, tensor))
        own.produce(tensor, gradient(rank.rank, step, tensor),
                    random() % 2 == 0 ? Where::in_bucket : Where::elsewhere);
    }
    seen.push_back(own.finish());
    EXPECT_EQ(own.reducer.stopping(), step > 0 && (step - 1) % 3 == 2) << step;
  }
  own.reducer.await_results();
  EXPECT_EQ(own.reducer.stopping(), (step - 1) % 3 == 2);
  own.wait();
  for (step = 0; step < steps; ++step)
    for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
      double sum = 0;
      bool present = false;
      for (int r = 0; r < rank.size; ++r) {
        if (!has(r, step, tensor)) continue;
        sum += gradient(r, step, tensor);
        present = true;
      }
      EXPECT_EQ(seen[static_cast<std::size_t>(step)].present[tensor], present);
      EXPECT_TRUE(own.has_all(seen[static_cast<std::size_t>(step)], tensor, sum / rank.size))
          << step << " " << tensor;
    }
}

class GpuBuckets : public testing::TestWithParam<Gpus> {
 public:
  static std::string name(const testing::TestParamInfo<Gpus>& way) {
    return std::string(are_shared(way.param) ? "shared" : "one_each") + (divide(way.param) ? "_divided" : "");
  }
};
class GpuBucketsMutations : public GpuBuckets {};
class GpuBucketsCosts : public GpuBuckets {};  // without those of gathering

const auto all_ways =
    testing::Values(Gpus::one_each, Gpus::shared, Gpus::one_each_divided, Gpus::shared_divided);
INSTANTIATE_TEST_SUITE_P(Gpus, GpuBuckets, all_ways, GpuBuckets::name);
INSTANTIATE_TEST_SUITE_P(Gpus, GpuBucketsCosts, testing::Values(Gpus::one_each, Gpus::shared),
                         GpuBuckets::name);
// A single rank copies nothing when it gathers through CUDA IPC.
INSTANTIATE_TEST_SUITE_P(Gpus, GpuBucketsMutations,
                         testing::Values(Gpus::one_each, Gpus::shared, Gpus::one_each_divided),
                         GpuBuckets::name);

TEST_P(GpuBuckets, RandomOrdersStreamsAndAbsentGradients) {
  const auto first = seed(11);
  for (const int ranks : {1, rounds(3, 4)}) {
    if (real_gpus() > 0 && ranks > real_gpus() && !are_shared(GetParam())) break;
    expect_all_succeed(run_gpu_ranks(ranks, [&](GpuRank& rank) {
      SCOPED_TRACE(testing::Message() << "seed " << first);
      train(rank, GetParam(), first, 23, rounds(4, 7));
    }));
  }
}

// If the host waited for the device anywhere in the step, it would wait until the alarm.
TEST_P(GpuBuckets, AStepIsQueuedWhileTheDeviceStandsStill) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double can stand still";
  expect_all_succeed(run_gpu_ranks(2, [&](GpuRank& rank) {
    DeviceRank own(rank, GetParam(), 9);
    auto& pause = of_double<void(bool)>("gpu_double_pause");
    for (int step = 0; step < 3; ++step) {
      own.begin_step();
      own.produce_all(step);
      own.finish();
    }
    own.reducer.await_results();
    own.wait();
    pause(true);
    ::alarm(20);
    own.begin_step();
    own.produce_all(7);
    const auto launches = of_double<int()>("gpu_double_launches")();
    const auto seen = own.finish();
    // finish() only waits, but one of the ranks that share a GPU adds the numbers with a kernel.
    EXPECT_EQ(of_double<int()>("gpu_double_launches")(),
              launches + (GetParam() == Gpus::shared_divided && rank.rank == 0 ? 1 : 0));
    pause(false);
    own.wait();
    for (std::size_t tensor = 0; tensor < 9; ++tensor) EXPECT_TRUE(own.has_all(seen, tensor, 7)) << tensor;
  }));
}

// Rank 1 begins only when the bucket in which rank 0 waits has been explained. NCCL connects ranks in the
// first reduction, so rank 0 waits while it marks a gradient.
TEST_P(GpuBuckets, AreExplainedWhileARankWaits) {
  if (real_gpus() == 1) GTEST_SKIP() << "there is one GPU only";
  expect_all_succeed(run_gpu_ranks(2, [&](GpuRank& rank) {
    DeviceRank own(rank, GetParam(), 9);
    std::thread watchdog([&] {
      if (rank.rank == 1) return;
      while (own.calls.read().at(0).name != "bucket 0") std::this_thread::yield();
      while (!own.reducer.explain("bucket 0")) std::this_thread::yield();
      rank.shared = 1;
    });
    while (rank.rank == 1 && rank.shared == 0) std::this_thread::yield();
    own.begin_step();
    own.produce_all(1);
    own.finish();
    own.wait();
    watchdog.join();
  }));
}

// What a bucket costs, however many gradients it has. One launch packs them; one looks for elements that are
// not finite. Ranks that share a GPU reduce the bucket with one more.
TEST_P(GpuBucketsCosts, AreFewCallsOfCuda) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double counts calls";
  for (const int ranks : {1, 2})
    expect_all_succeed(run_gpu_ranks(ranks, [&](GpuRank& rank) {
      constexpr std::size_t tensors = 20;
      DeviceRank own(rank, GetParam(), tensors);
      const auto buckets = static_cast<int>(own.reducer.plan().buckets.size());
      EXPECT_LT(buckets, 15);
      const auto calls = of_double<int(const char*)>("gpu_double_calls");
      std::map<std::string, int> before, during;
      const auto count = [&](std::map<std::string, int>& counts) {
        for (const auto* name : {"cudaLaunchKernel", "cudaMemcpyAsync", "cudaEventRecord",
                                 "cudaStreamWaitEvent", "cudaMemsetAsync"})
          counts[name] = calls(name);
      };
      own.begin_step();
      count(before);
      for (std::size_t tensor = 0; tensor < tensors; ++tensor) own.produce(tensor, 1, Where::elsewhere);
      const auto seen = own.finish();
      count(during);
      const auto of_bucket = [&](const char* name, int others = 0) {
        const int number = during[name] - before[name] - others;
        EXPECT_EQ(number % buckets, 0) << name << " " << number;
        return number / buckets;
      };
      const bool reduced = ranks > 1;
      EXPECT_EQ(of_bucket("cudaLaunchKernel"), reduced && GetParam() == Gpus::shared ? 3 : 2);
      // Flags and table; what is known of earlier buckets; flags. The others are the test's own copies.
      EXPECT_EQ(of_bucket("cudaMemcpyAsync", 2 * tensors + buckets), 3);
      EXPECT_EQ(of_bucket("cudaEventRecord"), reduced ? 3 : 2);  // written, reduced by the ranks, and known
      EXPECT_EQ(of_bucket("cudaStreamWaitEvent"), 2);            // of the reduction, and of the update
      EXPECT_EQ(of_bucket("cudaMemsetAsync"), 0);
      own.wait();
    }));
}

int two_steps(GpuRank& rank, Gpus gpus) {
  DeviceRank own(rank, gpus, 9);
  std::vector<DeviceRank::Seen> seen;  // kept, because the host waits for the device when it frees memory
  for (int step = 0; step < 2; ++step) {
    own.begin_step();
    own.produce_all(step);
    seen.push_back(own.finish());
  }
  own.reducer.await_results();
  own.wait();
  return of_double<int()>("gpu_double_waits")();
}

// Each wait for an event is needed, and the double notices if it is missing.
TEST_P(GpuBucketsMutations, NoWaitForAnEventCanBeLeftOut) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double leaves out waits";
  const auto waits =
      run_gpu_ranks(1, [&](GpuRank& rank) { throw Error(std::to_string(two_steps(rank, GetParam()))); });
  const int count = std::atoi(waits[0].message.c_str());
  ASSERT_GT(count, 20) << waits[0].message;
  for (int lost = 1; lost <= count; ++lost)
    expect_all_succeed(run_gpu_ranks(1,
                                     [&](GpuRank& rank) {
                                       two_steps(rank, GetParam());
                                       EXPECT_GT(races(), 0) << "wait " << lost << " of " << count;
                                     },
                                     {{"GPU_DOUBLE_LOSE_WAIT", std::to_string(lost)}}));
}

// The device leaves out the updates from the bucket with the NaN to the end of the next step. Then the host
// has learned it.
TEST_P(GpuBuckets, ANumberThatIsNotFiniteIsKnownOneStepLater) {
  expect_all_succeed(run_gpu_ranks(2, [&](GpuRank& rank) {
    DeviceRank own(rank, GetParam(), 20);
    const auto& buckets = own.reducer.plan().buckets;
    ASSERT_GT(buckets.size(), 3u);
    const auto bad = buckets[1].slots.back().tensor;
    std::vector<DeviceRank::Seen> seen;
    std::vector<std::optional<std::size_t>> known;
    for (int step = 0; step < 5; ++step) {
      own.begin_step();
      for (std::size_t tensor = 0; tensor < 20; ++tensor)
        own.produce(
            tensor,
            tensor == bad && step == 1 && rank.rank == 1 ? std::numeric_limits<double>::quiet_NaN() : 1,
            Where::in_bucket);
      seen.push_back(own.finish());
      known.push_back(own.reducer.first_nonfinite());
    }
    own.wait();
    EXPECT_EQ(known, (std::vector<std::optional<std::size_t>>{{}, {}, bad, {}, {}}));
    const std::vector<float> none(buckets.size(), 0), all(buckets.size(), 1);
    auto some = all;
    some[0] = 0;
    EXPECT_EQ(own.left_out(seen[0]), none);
    EXPECT_EQ(own.left_out(seen[1]), some);
    EXPECT_EQ(own.left_out(seen[2]), all);
    EXPECT_EQ(own.left_out(seen[3]), none);
    EXPECT_EQ(own.left_out(seen[4]), none);
  }));
}

TEST_P(GpuBuckets, ALostRankEndsTheWaitForGradients) {
  const auto ends = run_gpu_ranks(3, [&](GpuRank& rank) {
    DeviceRank own(rank, GetParam(), 9);
    for (int step = 0; step < 3; ++step) {
      if (rank.rank == 2 && step == 1) {
        own.wait();  // or else the others may still wait in the collective before the buckets
        std::raise(SIGKILL);
      }
      own.begin_step();
      own.produce_all(1);
      own.finish();
    }
  });
  EXPECT_EQ(ends[2].exit_code, -1);
  for (const int other : {0, 1}) {
    const auto& end = ends[static_cast<std::size_t>(other)];
    EXPECT_EQ(end.exit_code, 70);
    EXPECT_THAT(end.message,
                AllOf(HasSubstr("rank 2 "), HasSubstr("killed by SIGKILL"), HasSubstr("bucket")));
  }
}

// Calls of the reducer's steps, and how many of them come before its end.
std::map<std::string, int> calls_of_steps(Gpus gpus) {
  std::map<std::string, int> calls = {{"cudaMemcpyAsync", 40},
                                      {"cudaLaunchKernel", 12},
                                      {"cudaEventRecord", 40},
                                      {"cudaStreamWaitEvent", 20},
                                      {"cudaEventQuery", 10}};
  if (gpus == Gpus::one_each_divided)
    calls.insert(
        {{"ncclReduceScatter", 8}, {"ncclAllGather", 8}, {"ncclGroupStart", 16}, {"ncclGroupEnd", 16}});
  if (!are_shared(gpus))
    calls.insert({{"ncclAllReduce", 8}, {"ncclCommGetAsyncError", 20}, {"cudaMemsetAsync", 1}});
  else
    calls.insert({{"cuStreamWriteValue32", 16}, {"cuStreamWaitValue32", 16}});
  return calls;
}

void three_steps(GpuRank& rank, Gpus gpus) {
  DeviceRank own(rank, gpus, 9);
  for (int step = 0; step < 3; ++step) {
    own.begin_step();
    if (step == 1)
      own.produce(3, 1, Where::elsewhere);
    else
      own.produce_all(step);
    own.finish();
  }
  own.reducer.await_results();
}

// Runs three steps on `ranks` ranks for each of these calls. In a random one of its uses, rank 1 does what
// `variable` says to the double.
void disturb_each_call(Gpus gpus, int ranks, const char* variable, unsigned first_seed,
                       const std::function<void(const std::vector<GpuEnd>&, const std::string&)>& check) {
  std::mt19937 random(seed(first_seed));
  for (const auto& [call, most] : calls_of_steps(gpus)) {
    const auto use =
        call + ":" + std::to_string(1 + static_cast<int>(random() % static_cast<unsigned>(most)));
    check(run_gpu_ranks(ranks,
                        [&](GpuRank& rank) {
                          if (rank.rank == 1) ::setenv(variable, use.c_str(), 1);
                          three_steps(rank, gpus);
                        }),
          use);
  }
}

// The rank whose call fails names it. The others do not wait for it.
TEST_P(GpuBuckets, ACallThatFailsEndsAllRanks) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double fails";
  disturb_each_call(GetParam(), 2, "GPU_DOUBLE_FAIL", 6, [](const auto& ends, const std::string& fault) {
    EXPECT_EQ(ends[1].exit_code, 1) << fault << ": " << ends[1].message;
    EXPECT_THAT(ends[1].message, HasSubstr("an injected")) << fault;
    EXPECT_EQ(ends[0].exit_code, 70) << fault << ": " << ends[0].message;
    EXPECT_THAT(ends[0].message, HasSubstr("rank 1 ")) << fault;
  });
}

TEST_P(GpuBuckets, ARankLostInAnyCallEndsTheOthers) {
  if (real_gpus() > 0) GTEST_SKIP() << "only the double dies";
  disturb_each_call(GetParam(), 3, "GPU_DOUBLE_DIE", 7, [](const auto& ends, const std::string& death) {
    EXPECT_EQ(ends[1].exit_code, -1) << death;
    for (const std::size_t other : {0, 2}) {
      EXPECT_EQ(ends[other].exit_code, 70) << death << ": " << ends[other].message;
      EXPECT_THAT(ends[other].message, AllOf(HasSubstr("rank 1 "), HasSubstr("killed by SIGKILL"))) << death;
    }
  });
}

// Memory of buckets that are still being reduced, or that updates still read, must not be freed; the double
// would use it.
TEST_P(GpuBuckets, EndsInTheMiddleOfAStep) {
  for (const bool finishes : {false, true})
    expect_all_succeed(run_gpu_ranks(2, [&](GpuRank& rank) {
      DeviceRank own(rank, GetParam(), 9);
      own.begin_step();
      if (finishes) {
        own.produce_all(1);
        own.finish();
      } else {
        for (std::size_t i = 9; i-- > 0;) own.produce(i, 1, Where::in_bucket);
      }
    }));
}

}  // namespace
}  // namespace farandole

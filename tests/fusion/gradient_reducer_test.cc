#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "error_message.h"
#include "fusion/thread_world.h"
#include "lane.h"

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/shm/shared_memory_communicator.h"
#include "farandole/comm/wrap/traced_communicator.h"
#include "farandole/fusion/host_reducer.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

BucketPlan small_plan(std::size_t tensors, std::size_t bucket_bytes) {
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < tensors; ++i)
    specs.push_back({"t" + std::to_string(i), {static_cast<std::int64_t>(i % 7 * 5 + 1)}, DType::float64});
  return plan_buckets(std::move(specs), {bucket_bytes, bucket_bytes / 2 + 1});
}

void fill(GradientReducer& reducer, std::size_t tensor, double value) {
  const auto count = reducer.plan().tensors[tensor].count();
  const std::vector<double> values(count, value);
  std::memcpy(reducer.data(tensor), values.data(), count * sizeof(double));
}

void expect_all(GradientReducer& reducer, std::size_t tensor, double value, double tolerance = 0) {
  std::vector<double> values(reducer.plan().tensors[tensor].count());
  std::memcpy(values.data(), reducer.data(tensor), values.size() * sizeof(double));
  for (const double each : values)
    if (tolerance == 0)
      ASSERT_DOUBLE_EQ(each, value) << "tensor " << tensor;
    else
      ASSERT_NEAR(each, value, tolerance) << "tensor " << tensor;
}

// Sums on `ranks` threads.
void with_reducers(int ranks, const BucketPlan& plan, const std::function<void(HostReducer&)>& body) {
  ThreadWorld::run(ranks, [&](Communicator& communicator) {
    Timeline timeline;
    HostReducer reducer(communicator, plan, ReduceOp::sum, timeline);
    body(reducer);
  });
}

// A transport without a non-blocking allreduce, a transport with it, and the latter with compression,
// which needs the thread.
enum class Way { blocking, nonblocking, compressed };

class Reductions : public testing::TestWithParam<Way> {
 protected:
  static void run(int ranks, const std::function<void(Communicator&, std::optional<DType>)>& body) {
    ThreadWorld::run(ranks, [&](Communicator& world) {
      if (GetParam() == Way::blocking) return body(world, std::nullopt);
      SharedMemoryCommunicator shared(world, {.arena_bytes = std::size_t{64} << 20});
      body(shared, GetParam() == Way::compressed ? std::optional(DType::float16) : std::nullopt);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, Reductions, testing::Values(Way::blocking, Way::nonblocking, Way::compressed));

// Ranks are threads. Over several steps, each rank marks a random part of its gradients in its own order.
TEST_P(Reductions, RandomOrdersAndAbsentGradients) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    const int ranks = 1 + static_cast<int>(seed % 4);
    const std::size_t tensors = 1 + seed % 23;
    const auto has = [&](int rank, int step, std::size_t tensor) {
      return std::mt19937(seed * 1000u + static_cast<unsigned>(rank * 100 + step * 31) +
                          static_cast<unsigned>(tensor) * 7u)() %
                 3 !=
             0;
    };
    run(ranks, [&](Communicator& communicator, std::optional<DType> compressed) {
      Timeline timeline;
      HostReducer reducer(communicator, small_plan(tensors, 200), ReduceOp::average, timeline,
                          {.compressed = compressed});
      std::mt19937 random(seed + static_cast<unsigned>(communicator.rank));
      for (int step = 0; step < 5; ++step) {
        std::vector<std::size_t> order(tensors);
        for (std::size_t i = 0; i < tensors; ++i) order[i] = i;
        std::shuffle(order.begin(), order.end(), random);
        for (const auto i : order) {
          if (!has(communicator.rank, step, i)) continue;
          fill(reducer, i, communicator.rank + 1.0 + static_cast<double>(i));
          reducer.mark_ready(i);
        }
        std::vector<std::size_t> told;
        const auto tell = [&](std::size_t bucket) {
          told.push_back(bucket);
          for (const auto& slot : reducer.plan().buckets[bucket].slots) {
            bool somewhere = false;
            for (int r = 0; r < ranks; ++r) somewhere = somewhere || has(r, step, slot.tensor);
            EXPECT_EQ(reducer.present(slot.tensor), somewhere);
          }
        };
        if (step % 2 == 0) {
          reducer.finish(tell);
          ASSERT_EQ(told.size(), reducer.plan().buckets.size());
          for (std::size_t b = 0; b < told.size(); ++b) EXPECT_EQ(told[b], b);
        } else {
          reducer.finish();
        }
        for (std::size_t i = 0; i < tensors; ++i) {
          double sum = 0;
          int there = 0;
          for (int r = 0; r < ranks; ++r) {
            if (!has(r, step, i)) continue;
            sum += r + 1.0 + static_cast<double>(i);
            ++there;
          }
          EXPECT_EQ(reducer.present(i), there > 0);
          expect_all(reducer, i, sum / ranks, compressed ? ranks * sum * 0x1p-11 : 0);
        }
      }
    });
  }
}

TEST_P(Reductions, DoNotLookForNumbersThatAreNotFiniteIfNobodyAsks) {
  run(2, [&](Communicator& communicator, std::optional<DType> compressed) {
    Timeline timeline;
    HostReducer reducer(communicator, small_plan(3, 200), ReduceOp::sum, timeline,
                        {.compressed = compressed, .finds_nonfinite = false});
    for (int step = 0; step < 2; ++step) {
      for (std::size_t i = 0; i < 3; ++i) {
        if (i == 2 && communicator.rank == 0) continue;
        auto* const values = reinterpret_cast<double*>(reducer.data(i));
        std::fill_n(values, reducer.plan().tensors[i].count(), std::numeric_limits<double>::infinity());
        reducer.mark_ready(i);
      }
      reducer.finish();
      EXPECT_EQ(reducer.first_nonfinite(), std::nullopt);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(reducer.present(i));
        EXPECT_TRUE(std::isinf(*reinterpret_cast<const double*>(reducer.data(i))));
      }
    }
  });
}

TEST_P(Reductions, AllRanksKnowInTheSameStepThatOneMustStop) {
  run(3, [&](Communicator& communicator, std::optional<DType> compressed) {
    Timeline timeline;
    int step = 0;
    HostReducer reducer(
        communicator, small_plan(9, 200), ReduceOp::average, timeline,
        {.compressed = compressed, .stop_requested = [&] { return communicator.rank == 1 && step == 2; }});
    for (; step < 5; ++step) {
      for (std::size_t i = 0; i < 9; ++i) reducer.mark_ready(i);
      reducer.finish();
      EXPECT_EQ(reducer.stopping(), step == 2) << step;
    }
  });
}

// Each rank spoils random gradients with a NaN or an infinity at a random place. All ranks find the same one,
// and each knows its own. Steps with and without them alternate.
TEST_P(Reductions, FindsGradientsThatAreNotFinite) {
  constexpr std::size_t tensors = 11;
  constexpr int ranks = 3;
  for (const auto dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    const auto spoiled = [&](int rank, int step, std::size_t tensor) {
      return step % 3 != 0 &&
             std::mt19937(static_cast<unsigned>(rank * 1000 + step * 50) + static_cast<unsigned>(tensor))() %
                     9 ==
                 0;
    };
    run(ranks, [&](Communicator& communicator, std::optional<DType> compressed) {
      std::vector<TensorSpec> specs;
      for (std::size_t i = 0; i < tensors; ++i)
        specs.push_back({"t" + std::to_string(i), {static_cast<std::int64_t>(i * 37 + 1)}, dtype});
      Timeline timeline;
      HostReducer reducer(communicator, plan_buckets(std::move(specs), {300, 300}), ReduceOp::average,
                          timeline, {.compressed = compressed});
      std::mt19937 random(7u + static_cast<unsigned>(communicator.rank));
      for (int step = 0; step < 12; ++step) {
        std::optional<std::size_t> own, any;
        for (const auto& bucket : reducer.plan().buckets)
          for (const auto& slot : bucket.slots) {
            if (!own && spoiled(communicator.rank, step, slot.tensor)) own = slot.tensor;
            for (int r = 0; r < ranks; ++r)
              if (!any && spoiled(r, step, slot.tensor)) any = slot.tensor;
          }
        for (std::size_t i = 0; i < tensors; ++i) {
          const auto& spec = reducer.plan().tensors[i];
          std::memset(reducer.data(i), 0, spec.bytes());
          if (spoiled(communicator.rank, step, i)) {
            // The upper half of an infinity is 0x7c00, 0x7f80, 0x7f80 or 0x7ff0; a larger one is that
            // of a NaN.
            const std::uint16_t infinity = dtype == DType::float16   ? 0x7c00
                                           : dtype == DType::float64 ? 0x7ff0
                                                                     : 0x7f80;
            const auto half = static_cast<std::uint16_t>(infinity + random() % 2);
            const auto place = random() % spec.count();
            std::memcpy(reducer.data(i) + (place + 1) * size_of(dtype) - sizeof half, &half, sizeof half);
          }
          reducer.mark_ready(i);
        }
        std::optional<std::size_t> reduced_so_far;
        reducer.finish([&](std::size_t bucket) {
          for (const auto& slot : reducer.plan().buckets[bucket].slots)
            for (int r = 0; r < ranks; ++r)
              if (!reduced_so_far && spoiled(r, step, slot.tensor)) reduced_so_far = slot.tensor;
          EXPECT_EQ(reducer.first_nonfinite(), reduced_so_far);
        });
        EXPECT_EQ(reducer.first_nonfinite(), any) << name_of(dtype) << " step " << step;
        EXPECT_EQ(reducer.first_nonfinite_here(), own) << name_of(dtype) << " step " << step;
        for (std::size_t i = 0; i < tensors; ++i) EXPECT_TRUE(reducer.present(i));
      }
    });
  }
}

// 1e6 is beyond the range of float16, so no rank has sent anything that is not finite.
TEST(GradientReducer, FindsWhatOnlyCompressionMakesInfinite) {
  ThreadWorld::run(2, [](Communicator& communicator) {
    Timeline timeline;
    HostReducer reducer(communicator, small_plan(4, 60), ReduceOp::average, timeline,
                        {.compressed = DType::float16});
    for (const double value : {1.0, 1e6, 2.0}) {
      for (std::size_t i = 0; i < 4; ++i) {
        fill(reducer, i, i == 2 ? value : 1.0);
        reducer.mark_ready(i);
      }
      reducer.finish();
      EXPECT_EQ(reducer.first_nonfinite(), value > 1e5 ? std::optional<std::size_t>(2) : std::nullopt);
      EXPECT_EQ(reducer.first_nonfinite_here(), std::nullopt);
    }
  });
}

TEST(GradientReducer, SumDoesNotDivide) {
  with_reducers(3, small_plan(2, 8), [](HostReducer& reducer) {
    for (std::size_t i = 0; i < 2; ++i) {
      fill(reducer, i, 2.0);
      reducer.mark_ready(i);
    }
    reducer.finish();
    expect_all(reducer, 0, 6.0);
    expect_all(reducer, 1, 6.0);
  });
}

TimelineOptions recorded_in(const TemporaryFolder& folder) {
  return {.file = folder / "rank-0000.ftl"};
}

void for_each_record(const TemporaryFolder& folder,
                     const std::function<void(const Record&, const std::string& name)>& visit) {
  const RecorderFile file(folder / "rank-0000.ftl");
  for (std::size_t slot = 0; slot < file.threads().size(); ++slot)
    for (const auto& record : file.records(slot)) visit(record, file.names().at(record.name));
}

// Recorded in every step and in the plan's order, before the collective starts, also if a
// gradient is never ready.
TEST(GradientReducer, NotesWhenEachBucketIsReady) {
  constexpr std::size_t tensors = 6;
  for (const auto compressed : {std::optional<DType>(), std::optional(DType::float16)}) {
    const TemporaryFolder folder;
    {
      Timeline timeline(recorded_in(folder));
      TracedCommunicator traced(std::make_unique<SoloCommunicator>(), timeline, 0);
      HostReducer reducer(traced, small_plan(tensors, 8), ReduceOp::sum, timeline,
                          {.compressed = compressed});
      std::mt19937 random(seed(7));
      for (std::int64_t step = 0; step < 50; ++step) {
        timeline.set_step(step);
        std::vector<std::size_t> order(tensors);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::shuffle(order.begin(), order.end(), random);
        order.resize(tensors - random() % 2);
        for (const auto tensor : order) reducer.mark_ready(tensor);
        reducer.finish();
      }
    }
    using OfBucket = std::map<std::pair<std::int64_t, std::string>, std::vector<Record>>;
    OfBucket ready, reduced;
    for_each_record(folder, [&](const Record& record, const std::string& name) {
      if (record.kind == RecordKind::instant && name.starts_with("bucket "))
        ready[{record.step, name}].push_back(record);
      else if (record.kind == RecordKind::collective)
        reduced[{record.step, name + " ready"}].push_back(record);
    });
    EXPECT_GE(reduced.size(), 50u * 2);
    ASSERT_EQ(ready.size(), reduced.size());
    for (const auto& [key, of_bucket] : ready) {
      ASSERT_EQ(of_bucket.size(), 1u) << key.second;
      ASSERT_EQ(reduced[key].size(), 1u) << key.second;
      EXPECT_LE(of_bucket[0].start_ns, reduced[key][0].start_ns) << key.second;
      EXPECT_EQ(of_bucket[0].payload, reduced[key][0].payload * (compressed ? 4 : 1)) << key.second;
    }
  }
}

TEST(GradientReducer, MarkingTwiceIsNamed) {
  with_reducers(1, small_plan(2, 1000), [](HostReducer& reducer) {
    reducer.mark_ready(1);
    EXPECT_THAT(message_of<Error>([&] { reducer.mark_ready(1); }), testing::HasSubstr("t1"));
  });
}

TEST(GradientReducer, AFailedReductionIsThrownByFinish) {
  FailingCommunicator failing;
  Timeline timeline;
  HostReducer reducer(failing, small_plan(3, 1000), ReduceOp::sum, timeline);
  EXPECT_THROW(reducer.finish(), Error);
}

TEST(GradientReducer, EndsWithoutFinish) {
  // In the last bucket, so nothing is sent yet.
  with_reducers(2, small_plan(5, 16), [](HostReducer& reducer) { reducer.mark_ready(0); });
}

TEST(GradientReducer, RefusesIntegers) {
  const auto plan = plan_buckets({{"i", {3}, DType::int64}}, {});
  SoloCommunicator alone;
  Timeline timeline;
  EXPECT_THROW(HostReducer(alone, plan, ReduceOp::sum, timeline), UserError);
}

TEST(GradientReducer, ExplainsItsBuckets) {
  with_reducers(1, small_plan(6, 1 << 20), [](HostReducer& reducer) {
    ASSERT_EQ(reducer.plan().buckets.size(), 1u);
    reducer.mark_ready(5);
    const auto next = reducer.explain("");
    ASSERT_TRUE(next);
    EXPECT_EQ(next->contents.size(), 6u);
    EXPECT_EQ(next->awaited, (std::vector<std::string>{"t4", "t3", "t2", "t1", "t0"}));
    EXPECT_EQ(reducer.explain("bucket 0")->contents, next->contents);
    EXPECT_FALSE(reducer.explain("bucket 1"));
    EXPECT_FALSE(reducer.explain("shapes"));
    reducer.finish();
    EXPECT_EQ(reducer.explain("")->awaited.size(), 6u);
  });
}

std::string disagreement(int ranks, const std::function<std::vector<TensorSpec>(int)>& tensors) {
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  ThreadWorld::run(ranks, [&](Communicator& communicator) {
    try {
      check_plan_agreement(communicator, plan_buckets(tensors(communicator.rank), {}));
    } catch (const UserError& error) {
      messages[static_cast<std::size_t>(communicator.rank)] = error.what();
    }
  });
  for (const auto& message : messages) EXPECT_EQ(message, messages[0]);
  return messages[0];
}

TEST(PlanAgreement, EqualPlansPass) {
  EXPECT_EQ(disagreement(4, [](int) { return std::vector<TensorSpec>{{"w", {3, 4}}, {"b", {3}}}; }), "");
}

TEST(PlanAgreement, ADifferentShapeIsNamedWithItsRanks) {
  const auto message = disagreement(3, [](int rank) {
    return std::vector<TensorSpec>{{"w", {3, rank == 1 ? 5 : 4}}, {"b", {3}}};
  });
  EXPECT_NE(message.find("w float32 [3, 5]"), std::string::npos) << message;
  EXPECT_NE(message.find("ranks 0, 2"), std::string::npos) << message;
  EXPECT_EQ(message.find("b float32"), std::string::npos) << message;
}

TEST(PlanAgreement, AMissingTensorIsNamed) {
  const auto message = disagreement(2, [](int rank) {
    std::vector<TensorSpec> tensors{{"w", {3}}};
    if (rank == 0) tensors.push_back({"only on rank 0", {2}});
    return tensors;
  });
  EXPECT_NE(message.find("only on rank 0"), std::string::npos) << message;
}

}  // namespace
}  // namespace farandole

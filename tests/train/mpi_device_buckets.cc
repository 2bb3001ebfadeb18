// The optimizer with buckets in memory of a device, and snapshots: the test doubles of CUDA and NCCL, whose
// memory CPU tensors can use. The results must be those of buckets in memory of the host, bit by bit.
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <gmock/gmock.h>
#include <limits>
#include <thread>
#include <torch/optim.h>
#include <torch/utils.h>
#include <tuple>

#include "train/device_session.h"

#include "farandole/base/error.h"
#include "farandole/train/run/training_state.h"
#include "farandole/train/session_internals.h"

namespace farandole {
namespace {

using torch::Tensor;

DistributedOptimizerOptions small_buckets() {
  DistributedOptimizerOptions options;
  options.buckets = {400, 200};
  return options;
}

// The same training with buckets in memory of the host and of the device.
struct HereAndThere {
  explicit HereAndThere(const DistributedOptimizerOptions& options, bool shared = false)
      : reference(*session, b, here.named_parameters(), options),
        device(shared),
        optimizer(*session, a, there.named_parameters(), options) {}
  // `train(net, optimizer)` is a step of each.
  void step(const std::function<void(SidedNet&, DistributedOptimizer&)>& train) {
    train(there, optimizer);
    train(here, reference);
  }

  SidedNet there, here;
  torch::optim::AdamW a{there.parameters(), 0.01}, b{here.parameters(), 0.01};
  DistributedOptimizer reference;
  const WithDevice device;
  DistributedOptimizer optimizer;
};

// Each rank has a GPU, or all of them share one.
class DeviceBuckets : public testing::TestWithParam<std::tuple<bool, std::optional<double>>> {};

INSTANTIATE_TEST_SUITE_P(SharedAndClipNorm, DeviceBuckets,
                         testing::Combine(testing::Bool(), testing::Values(std::optional<double>(),
                                                                           std::optional<double>(0.1))));

TEST_P(DeviceBuckets, TrainTheSameParameters) {
  const auto [shared, clip_norm] = GetParam();
  auto options = small_buckets();
  options.clip_norm = clip_norm;
  HereAndThere both(options, shared);
  for (int step = 0; step < 9; ++step) {
    both.step([step](SidedNet& net, DistributedOptimizer& optimizer) {
      optimizer.zero_grad();
      net.loss(step).backward();
      if (step == 4) optimizer.synchronize();
      optimizer.step();
    });
    EXPECT_EQ(both.there.side->weight.grad().defined(), step % 3 != 2) << step;
    if (clip_norm) {
      EXPECT_EQ(both.optimizer.gradient_norm(), both.reference.gradient_norm());
    }
  }
  expect_same(both.there.named_parameters(), both.here.named_parameters());
  EXPECT_EQ(both.optimizer.sent_bytes(), both.reference.sent_bytes());
  EXPECT_EQ(both.optimizer.packed_bytes(), both.reference.packed_bytes());
}

// What the watchdog asks for when a collective of the device lasts too long.
TEST(DeviceBuckets, StallReportsNameTheTensors) {
  if (session->size() == 1) GTEST_SKIP() << "a rank that is alone has no watchdog";
  SidedNet net;
  torch::optim::SGD sgd(net.parameters(), 0.1);
  const WithDevice device;
  DistributedOptimizer optimizer(*session, sgd, net.named_parameters(), small_buckets());
  net.loss(1).backward();
  optimizer.step();
  const auto& registry = session->internals().calls();
  std::vector<CollectiveStatus> buckets;
  while (buckets.empty()) {
    buckets = registry.read();
    std::erase_if(buckets, [](const auto& call) { return !call.open || !call.name.starts_with("bucket "); });
  }
  const auto meaning = registry.meaning(buckets.back().communicator, buckets.back().name);
  ASSERT_TRUE(meaning);
  EXPECT_THAT(meaning->contents, testing::Contains(testing::HasSubstr(".weight")));
}

// The gradients of several passes are added where they lie, and packed once. A step may have fewer passes.
TEST(DeviceBuckets, AddTheGradientsOfSeveralPasses) {
  auto options = small_buckets();
  options.backward_passes_per_step = 3;
  HereAndThere both(options);
  for (int step = 0; step < 6; ++step)
    both.step([step](SidedNet& net, DistributedOptimizer& optimizer) {
      optimizer.zero_grad();
      for (int pass = 0; pass < (step == 4 ? 2 : 3); ++pass) net.loss(10 * step + pass).backward();
      optimizer.step();
    });
  expect_same(both.there.named_parameters(), both.here.named_parameters());
}

// NCCL divides the gradients by the scale of the loss before it adds them. After an overflow, the
// scale is halved.
TEST(DeviceBuckets, TheReductionUndoesTheScaleOfTheLoss) {
  auto options = small_buckets();
  options.loss_scaling = LossScaling{.initial = 1024, .growth_interval = 3};
  HereAndThere both(options);
  for (int step = 0; step < 8; ++step) {
    both.step([step](SidedNet& net, DistributedOptimizer& optimizer) {
      optimizer.zero_grad();
      optimizer.scale(net.loss(step) * (step == 5 ? std::numeric_limits<double>::infinity() : 1)).backward();
      if (step == 4) optimizer.synchronize();
      optimizer.step();
      EXPECT_EQ(optimizer.overflowed(), step == 5);
    });
    EXPECT_EQ(both.optimizer.loss_scale(), both.reference.loss_scale()) << step;
  }
  expect_same(both.there.named_parameters(), both.here.named_parameters(), 1e-4, 1e-5);
}

// A training in which rank 0 has an infinite gradient if `is_bad`.
struct SpoiltTraining {
  explicit SpoiltTraining(const DistributedOptimizerOptions& options)
      : optimizer(*session, sgd, net.named_parameters(), options) {}

  void backward(bool is_bad) {
    bad = is_bad;
    optimizer.zero_grad();
    net.loss(1).backward();
  }
  void step(bool is_bad) {
    backward(is_bad);
    optimizer.step();
  }

  SidedNet net;
  bool bad = false;
  unsigned hook = net.theirs->bias.register_hook(
      [this](const Tensor& gradient) { return bad && session->rank() == 0 ? gradient / 0.0 : gradient; });
  torch::optim::SGD sgd{net.parameters(), 0.1};
  const WithDevice device;
  DistributedOptimizer optimizer;
};

TEST(DeviceBuckets, AGradientThatIsNotFiniteLeavesTheStepOut) {
  auto options = small_buckets();
  options.on_nonfinite = OnNonFinite::skip;
  SpoiltTraining training(options);
  const auto before = values_of(training.net);
  training.step(true);
  const auto& skipped = training.optimizer.skipped();
  ASSERT_TRUE(skipped);
  EXPECT_EQ(skipped->what(),
            std::string("the gradient of theirs.bias has a NaN or an infinity after its reduction"));
  EXPECT_TRUE(torch::equal(values_of(training.net), before));
  training.step(false);
  EXPECT_FALSE(skipped);
  EXPECT_FALSE(torch::equal(values_of(training.net), before));
}

// The device leaves out the update by itself. The host learns it in the next step, or when it asks.
TEST(DeviceBuckets, AGradientThatIsNotFiniteIsReportedOneStepLater) {
  SpoiltTraining training({});
  training.step(false);
  const auto before = values_of(training.net);
  training.step(true);
  EXPECT_THROW(training.optimizer.confirm(), NonFiniteGradient);
  EXPECT_TRUE(torch::equal(values_of(training.net), before));
  training.step(false);
  training.optimizer.confirm();
  const auto after = values_of(training.net);
  EXPECT_FALSE(torch::equal(after, before));
  training.step(true);
  EXPECT_THROW(training.step(false), NonFiniteGradient);
  EXPECT_TRUE(torch::equal(values_of(training.net), after));
}

// After the first step, buckets are planned again. What the device knows of that step is not lost.
TEST(DeviceBuckets, AGradientOfTheFirstStepThatIsNotFiniteIsReported) {
  SpoiltTraining training(small_buckets());
  training.step(true);
  const auto before = values_of(training.net);  // The buckets before that of this gradient are updated.
  EXPECT_THROW(training.step(false), NonFiniteGradient);
  EXPECT_TRUE(torch::equal(values_of(training.net), before));
  training.step(false);
  training.step(false);
  training.optimizer.confirm();
  EXPECT_FALSE(torch::equal(values_of(training.net), before));
}

// As on a CPU, gradients that are thrown away have no effect on the next step.
TEST(DeviceBuckets, DiscardedGradientsThatAreNotFiniteDoNoHarm) {
  for (const auto on_nonfinite : {OnNonFinite::stop, OnNonFinite::skip})
    for (const bool synchronizes : {false, true}) {
      auto options = small_buckets();
      options.on_nonfinite = on_nonfinite;
      SpoiltTraining training(options);
      for (int step = 0; step < 3; ++step) {
        const auto before = values_of(training.net);
        training.backward(true);
        if (synchronizes) training.optimizer.synchronize();
        training.step(false);
        training.optimizer.confirm();
        EXPECT_FALSE(training.optimizer.skipped());
        EXPECT_FALSE(torch::equal(values_of(training.net), before)) << step << synchronizes;
      }
    }
}

// Without a finite norm no bucket is updated, also none before the one that is not finite.
TEST(DeviceBuckets, NothingIsClippedByANormThatIsNotFinite) {
  SidedNet net, before;
  net.ours->weight.register_hook([](const Tensor& gradient) { return gradient / 0.0; });  // The last bucket.
  torch::optim::SGD sgd(net.parameters(), 0.1);
  auto options = small_buckets();
  options.clip_norm = 1;
  const WithDevice device;
  DistributedOptimizer optimizer(*session, sgd, net.named_parameters(), options);
  net.loss(1).backward();
  optimizer.step();
  EXPECT_THROW(optimizer.confirm(), NonFiniteGradient);
  expect_same(net.named_parameters(), before.named_parameters());
}

TEST(DeviceBuckets, StayOnTheDeviceInAGroup) {
  const auto group = session->new_group({session->size() - 1});
  const WithDevice device;
  if (group == nullptr) return;
  SidedNet net;
  torch::optim::SGD sgd(net.parameters(), 0.1);
  auto options = small_buckets();
  options.group = group.get();
  DistributedOptimizer optimizer(*session, sgd, net.named_parameters(), options);
  for (int step = 0; step < 3; ++step) {
    train_step(optimizer, [&] { return net.loss(step); });
  }
}

// The copies run while the next step computes, and the update after it waits for them.
TEST(DeviceBuckets, ASnapshotHasTheStateOfItsStep) {
  SidedNet net;
  auto counter = net.register_buffer("counter", torch::zeros({3}));
  torch::optim::AdamW adam(net.parameters(), 0.01);
  const WithDevice device;
  DistributedOptimizer optimizer(*session, adam, net.named_parameters(), small_buckets());
  DeviceCopies copies(*session->internals().gpu, session->device());
  Snapshot snapshot, expected;
  std::function<void()> complete;
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    counter += 1;  // As a forward pass changes the statistics of a normalization.
    net.loss(step).backward();
    copies.hold();
    optimizer.step();
    if (complete) std::exchange(complete, {})();
    ASSERT_EQ(snapshot.arrays.size(), expected.arrays.size());
    for (std::size_t i = 0; i < snapshot.arrays.size(); ++i) {
      EXPECT_EQ(snapshot.arrays[i].path, expected.arrays[i].path);
      EXPECT_EQ(snapshot.arrays[i].bytes, expected.arrays[i].bytes) << step << " " << snapshot.arrays[i].path;
    }
    optimizer.confirm();
    SnapshotBuilder staged(std::move(snapshot)), direct(std::move(expected));
    capture(*session, {net, adam}, {.step = step}, staged, &copies);
    capture(*session, {net, adam}, {.step = step}, direct);
    if (session->rank() == 0) complete = copies.start();
    snapshot = staged.finish();
    expected = direct.finish();
    EXPECT_EQ(snapshot.arrays.empty(), session->rank() != 0);
  }
}

TEST(DeviceBuckets, CopiesAreAwaitedOnTheirDevice) {
  const WithDevice device;
  auto gpu = *session->internals().gpu;
  gpu.device = 3;
  DeviceCopies copies(gpu, session->device());
  const auto ones = torch::ones({5});
  std::vector<std::byte> there(20);
  copies.add(ones, there);
  void* const library = ::dlopen(FARANDOLE_GPU_DOUBLE, RTLD_NOW);
  auto* const get_device = reinterpret_cast<int (*)(int*)>(::dlsym(library, "cudaGetDevice"));
  int used = -1;
  std::thread([&, complete = copies.start()] {
    complete();
    get_device(&used);
  }).join();
  EXPECT_EQ(used, 3);
  EXPECT_EQ(std::memcmp(there.data(), ones.const_data_ptr(), there.size()), 0);
}

// A checkpoint must not end a job only because a machine has too little pinned memory.
TEST(DeviceBuckets, ACheckpointIsCopiedWithoutPinnedMemory) {
  const WithDevice device;
  DeviceCopies copies(*session->internals().gpu, session->device());
  for (const bool fails : {true, false}) {
    const auto values = torch::rand({1000});
    std::vector<std::byte> there(4000);
    copies.add(values, there);
    if (fails) ::setenv("GPU_DOUBLE_FAIL", "cudaHostAlloc:1", 1);
    const auto complete = copies.start();
    ::unsetenv("GPU_DOUBLE_FAIL");
    EXPECT_EQ(complete == nullptr, fails);
    if (complete) complete();
    EXPECT_EQ(std::memcmp(there.data(), values.const_data_ptr(), there.size()), 0);
  }
}

TEST(DeviceBuckets, RefuseWhatOnlyCpusHave) {
  SidedNet net;
  torch::optim::SGD sgd(net.parameters(), 0.1);
  const WithDevice device;
  auto options = small_buckets();
  options.compression = parse_compression("float16");
  EXPECT_THROW(DistributedOptimizer(*session, sgd, net.named_parameters(), options), UserError);
  options.compression = {};
  options.synchronization = parse_synchronization("parameters:2");
  EXPECT_THROW(DistributedOptimizer(*session, sgd, net.named_parameters(), options), UserError);
}

}  // namespace
}  // namespace farandole

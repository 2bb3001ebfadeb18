// Optimizers whose state the ranks divide on devices: the test doubles of CUDA and NCCL, whose memory CPU
// tensors can use. The results must be those of an optimizer in memory of the host that is not divided,
// bit by bit.
#include <algorithm>
#include <gmock/gmock.h>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/device_session.h"

#include "farandole/base/error.h"
#include "farandole/checkpoint/schema.h"
#include "farandole/train/optimizer/loss_scaler.h"
#include "farandole/train/run/training_state.h"
#include "farandole/train/session_internals.h"
#include "farandole/train/torch_optimizers.h"

namespace farandole {
namespace {

using torch::Tensor;

DistributedOptimizerOptions options_of_parts(Shard shard) {
  DistributedOptimizerOptions options;
  options.buckets = {1000, 500};
  options.shard = shard;
  return options;
}

std::unique_ptr<torch::optim::Optimizer> make_kind(const std::string& kind, const torch::nn::Module& net) {
  using namespace torch::optim;
  std::vector<OptimizerParamGroup> groups{{std::vector<Tensor>()}, {std::vector<Tensor>()}};
  for (const auto& item : net.named_parameters())
    groups[item.key().ends_with("bias") ? 1 : 0].params().push_back(item.value());
  const auto add = [&]<class Options>(Options options) {
    groups[0].set_options(std::make_unique<Options>(options.weight_decay(0.1)));
    return options.weight_decay(0);
  };
  if (kind == "sgd") return std::make_unique<SGD>(groups, add(SGDOptions(0.1)));
  if (kind == "momentum")
    return std::make_unique<SGD>(groups, add(SGDOptions(0.1).momentum(0.9).nesterov(true)));
  if (kind == "adam") return std::make_unique<Adam>(groups, add(AdamOptions(0.01).amsgrad(true)));
  if (kind == "rmsprop") return std::make_unique<RMSprop>(groups, add(RMSpropOptions(0.01).momentum(0.5)));
  return std::make_unique<AdamW>(groups, add(AdamWOptions(0.01)));
}

// The same training on the device, divided, and on the host, not divided.
struct Both {
  explicit Both(const std::string& kind = "adamw",
                const std::function<void(DistributedOptimizerOptions&)>& change = {})
      : a(make_kind(kind, there)), b(make_kind(kind, here)) {
    auto options = options_of_parts(Shard::off);
    if (change) change(options);
    reference.emplace(*session, *b, here.named_parameters(), options);
    device.emplace();
    options.shard = Shard::required;
    optimizer.emplace(*session, *a, there.named_parameters(), options);
  }
  void step(int step, const std::function<void(DistributedOptimizer&)>& between = {}) {
    const auto train = [&](SidedNet& net, DistributedOptimizer& with) {
      with.zero_grad();
      with.scale(net.loss(step)).backward();
      if (between) between(with);
      with.step();
    };
    train(there, *optimizer);
    train(here, *reference);
  }
  void steps(int from, int to) {
    for (int s = from; s < to; ++s) step(s);
  }
  void expect_same_state() {
    const auto there_named = export_optimizer_state(*a, numbered_parameters(*a));
    const auto here_named = export_optimizer_state(*b, numbered_parameters(*b));
    ASSERT_EQ(there_named.size(), here_named.size());
    for (std::size_t i = 0; i < there_named.size(); ++i) {
      EXPECT_EQ(there_named[i].first, here_named[i].first);
      EXPECT_TRUE(torch::equal(there_named[i].second, here_named[i].second)) << here_named[i].first;
    }
  }

  SidedNet there, here;
  std::unique_ptr<torch::optim::Optimizer> a, b;
  std::optional<DistributedOptimizer> reference;
  std::optional<WithDevice> device;
  std::optional<DistributedOptimizer> optimizer;
};

struct DividedOptimizers : testing::Test {
  void SetUp() override {
    if (session->size() == 1) GTEST_SKIP() << "a rank that is alone divides nothing";
  }
};

TEST_F(DividedOptimizers, TrainTheSameParameters) {
  for (const std::string kind : {"sgd", "momentum", "adam", "adamw", "rmsprop"}) {
    SCOPED_TRACE(kind);
    Both both(kind);
    EXPECT_TRUE(both.optimizer->sharding().divided);
    EXPECT_EQ(both.optimizer->sharding().ranks, session->size());
    for (int step = 0; step < 7; ++step) {
      for (auto* const inner : {both.a.get(), both.b.get()})
        for (auto& group : inner->param_groups()) group.options().set_lr(0.01 / (step + 1));
      both.step(step, [&](DistributedOptimizer& optimizer) {
        if (step == 4) optimizer.synchronize();
      });
      EXPECT_EQ(both.there.side->weight.grad().defined(), step % 3 != 2) << step;
      if (step == 4) {
        EXPECT_TRUE(torch::equal(both.there.ours->weight.grad(), both.here.ours->weight.grad()));
      }
    }
    EXPECT_TRUE(both.a->state().empty());
    expect_same(both.there.named_parameters(), both.here.named_parameters());
    // It stays the same when the program has read the state.
    both.optimizer->gather_state();
    both.expect_same_state();
    both.steps(7, 9);
    both.optimizer->gather_state();
    both.expect_same_state();
    expect_same(both.there.named_parameters(), both.here.named_parameters());
  }
}

TEST_F(DividedOptimizers, HaveTheirPartOfTheState) {
  torch::manual_seed(5);
  torch::nn::Linear net(300, 700);
  torch::optim::AdamW adam(net->parameters(), 0.01);
  const WithDevice device;
  DistributedOptimizerOptions options;
  options.shard = Shard::required;
  DistributedOptimizer optimizer(*session, adam, net->named_parameters(), options);
  step_of(optimizer, net(torch::ones({2, 300})).sum());
  const auto sharding = optimizer.sharding();
  const auto own = static_cast<double>(sharding.bytes_undivided - sharding.bytes) / (session->size() - 1);
  const double whole = 2 * 4 * 301 * 700;
  EXPECT_NEAR(own, whole / session->size(), 0.01 * whole / session->size());
}

TEST_F(DividedOptimizers, ClipTheNormOfAllParts) {
  Both both("adamw", [](auto& options) { options.clip_norm = 0.1; });
  for (int step = 0; step < 6; ++step) {
    both.step(step, [&](DistributedOptimizer& optimizer) {
      if (step == 4) optimizer.synchronize();
    });
    const double norm = both.reference->gradient_norm();
    EXPECT_GT(norm, 0.1);
    EXPECT_NEAR(both.optimizer->gradient_norm(), norm, 1e-6 * norm) << step;
  }
  expect_same(both.there.named_parameters(), both.here.named_parameters(), 1e-4, 1e-6);
  expect_equal_on_all_ranks(both.there.named_parameters());
}

TEST_F(DividedOptimizers, UndoTheScaleOfTheLoss) {
  Both both("momentum", [](auto& options) { options.loss_scaling = LossScaling{1024, 3}; });
  int current = 0;
  const auto spoil = [&](const Tensor& gradient) {
    return current == 2 && session->rank() == 1 ? gradient / 0.0 : gradient;
  };
  both.there.theirs->bias.register_hook(spoil);
  both.here.theirs->bias.register_hook(spoil);
  for (int step = 0; step < 6; ++step) {
    current = step;
    both.step(step);
    EXPECT_EQ(both.optimizer->overflowed(), step == 2);
    EXPECT_EQ(both.optimizer->loss_scale(), both.reference->loss_scale());
  }
  expect_same(both.there.named_parameters(), both.here.named_parameters(), 1e-4, 1e-6);
  expect_equal_on_all_ranks(both.there.named_parameters());
}

// Only one rank finds the element that is not finite, in its part. All ranks leave out the same updates.
TEST_F(DividedOptimizers, LeaveOutTheSameUpdates) {
  for (const auto on_nonfinite : {OnNonFinite::skip, OnNonFinite::stop}) {
    SidedNet net;
    bool bad = false;
    net.theirs->weight.register_hook([&](const Tensor& gradient) {
      if (!bad || session->rank() != 0) return gradient;
      auto spoilt = gradient.clone();
      spoilt[8][39] = std::numeric_limits<double>::infinity();
      return spoilt;
    });
    torch::optim::SGD sgd(net.parameters(), 0.1);
    const WithDevice device;
    auto options = options_of_parts(Shard::required);
    options.on_nonfinite = on_nonfinite;
    DistributedOptimizer optimizer(*session, sgd, net.named_parameters(), options);
    const auto train = [&](bool spoils) {
      bad = spoils;
      train_step(optimizer, [&] { return net.loss(1); });
    };
    train(false);
    const auto before = values_of(net);
    train(true);
    if (on_nonfinite == OnNonFinite::skip) {
      ASSERT_TRUE(optimizer.skipped());
      EXPECT_THAT(optimizer.skipped()->what(), testing::HasSubstr("theirs.weight"));
      EXPECT_TRUE(torch::equal(values_of(net), before));
    } else {
      EXPECT_THROW(optimizer.confirm(), NonFiniteGradient);
    }
    expect_equal_on_all_ranks(net.named_parameters());
    const auto after = values_of(net);
    train(false);
    optimizer.confirm();
    EXPECT_FALSE(torch::equal(values_of(net), after));
    expect_equal_on_all_ranks(net.named_parameters());
  }
}

// Each trains on from the snapshot of the other one.
TEST_F(DividedOptimizers, HaveTheSameSnapshots) {
  Both both;
  both.steps(0, 4);
  const auto snapshot_of = [](SidedNet& net, torch::optim::Optimizer& inner) {
    SnapshotBuilder builder;
    capture(*session, {net, inner}, {}, builder);
    return session->rank() == 0 ? builder.finish() : Snapshot();
  };
  auto there = snapshot_of(both.there, *both.a), here = snapshot_of(both.here, *both.b);
  ASSERT_EQ(there.arrays.size(), here.arrays.size());
  for (const auto& array : here.arrays) {
    const auto* const other = there.find(array.path);
    ASSERT_NE(other, nullptr) << array.path;
    EXPECT_EQ(other->shape, array.shape) << array.path;
    EXPECT_TRUE(std::ranges::equal(other->bytes, array.bytes)) << array.path;
  }
  both.steps(4, 6);
  const auto expected = values_of(both.here);
  auto* const root = session->rank() == 0 ? &there : nullptr;
  restore(*session, {both.here, *both.b}, root);
  restore(*session, {both.there, *both.a}, session->rank() == 0 ? &here : nullptr);
  both.steps(4, 6);
  EXPECT_TRUE(torch::equal(values_of(both.here), expected));
  expect_same(both.there.named_parameters(), both.here.named_parameters());
}

// Ranks without batches still have parts.
TEST_F(DividedOptimizers, UpdateThePartsOfRanksWithoutBatches) {
  Both both("momentum");
  const auto train = [](SidedNet& net, DistributedOptimizer& optimizer) {
    Join join(*session, {&optimizer});
    for (int step = 0; step < 2 + session->rank(); ++step)
      train_step(optimizer, [&] { return net.loss(step); });
  };
  train(both.there, *both.optimizer);
  train(both.here, *both.reference);
  expect_same(both.there.named_parameters(), both.here.named_parameters());
}

TEST_F(DividedOptimizers, RefuseTheirPartsWithoutTheOthers) {
  SidedNet net;
  torch::optim::AdamW adam(net.parameters(), 0.01);
  const WithDevice device;
  for (const bool gathers : {true, false}) {
    DistributedOptimizer optimizer(*session, adam, net.named_parameters(), options_of_parts(Shard::required));
    train_step(optimizer, [&] { return net.loss(1); });
    if (gathers) optimizer.gather_state();
  }
  DistributedOptimizer optimizer(*session, adam, net.named_parameters(), options_of_parts(Shard::required));
  net.loss(1).backward();
  try {
    optimizer.step();
    ADD_FAILURE() << "the step was not refused";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("call gather_state()"));
  }
}

TEST_F(DividedOptimizers, RefuseWhatCannotBeDivided) {
  SidedNet net;
  torch::optim::SGD sgd(net.parameters(), 0.1);
  {
    const WithDevice shared(true);
    EXPECT_THROW(
        DistributedOptimizer(*session, sgd, net.named_parameters(), options_of_parts(Shard::required)),
        UserError);
  }
  const WithDevice device;
  torch::optim::LBFGS lbfgs(net.parameters());
  EXPECT_THROW(
      DistributedOptimizer(*session, lbfgs, net.named_parameters(), options_of_parts(Shard::required)),
      UserError);
  const DistributedOptimizer undivided(*session, sgd, net.named_parameters(),
                                       options_of_parts(Shard::automatic));
  EXPECT_FALSE(undivided.sharding().divided);
  EXPECT_THAT(undivided.sharding().why_not, testing::HasSubstr("GPUs"));
}

}  // namespace
}  // namespace farandole

// Mixed precision and the scale of the loss.
#include <cmath>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

namespace farandole {
namespace {

using testing::ElementsAre;
using torch::Tensor;

template <class Layer>
struct TwoLayers : torch::nn::Module {
  TwoLayers() {
    torch::manual_seed(5);
    first = register_module("first", Layer(6, 9));
    second = register_module("second", Layer(9, 3));
  }
  Tensor loss(int step, Precision precision = Precision::float32) {
    torch::manual_seed(100 * session->rank() + step);
    const auto x = torch::randn({8, 6}), y = torch::randint(3, {8}, torch::kInt64);
    const Autocast autocast(precision, torch::kCPU);
    return torch::cross_entropy_loss(second(torch::tanh(first(x))), y);
  }
  Layer first{nullptr}, second{nullptr};
};

using MixedNet = TwoLayers<Linear>;

double largest_difference(const torch::nn::Module& a, const torch::nn::Module& b) {
  double most = 0;
  for (const auto& item : a.named_parameters()) {
    const auto other = b.named_parameters()[item.key()];
    most = std::max(most, (item.value() - other).abs().max().item<double>());
  }
  return most;
}

// The factor is a power of two, so the parameters are those of a training without it, bit by bit.
TEST(LossScaling, DoesNotChangeTheParameters) {
  for (const auto clip_norm : {std::optional<double>(), std::optional<double>(0.2)}) {
    MixedNet scaled, plain;
    torch::optim::Adam adam(scaled.parameters(), 0.01), reference(plain.parameters(), 0.01);
    DistributedOptimizerOptions options;
    options.clip_norm = clip_norm;
    DistributedOptimizer other(*session, reference, plain.named_parameters(), options);
    options.loss_scaling = LossScaling{1024, 3};
    DistributedOptimizer optimizer(*session, adam, scaled.named_parameters(), options);
    for (int step = 0; step < 8; ++step) {
      EXPECT_EQ(optimizer.loss_scale(), 1024 * std::exp2(step / 3));
      optimizer.zero_grad();
      optimizer.scale(scaled.loss(step)).backward();
      if (step == 5) optimizer.synchronize();
      optimizer.step();
      EXPECT_FALSE(optimizer.overflowed());
      other.zero_grad();
      plain.loss(step).backward();
      if (step == 5) other.synchronize();
      other.step();
      if (clip_norm) {
        EXPECT_EQ(optimizer.gradient_norm(), other.gradient_norm());
      }
    }
    EXPECT_EQ(largest_difference(scaled, plain), 0);
  }
}

// 8192 elements of 2000 have a norm of 181,019, which float16 does not have.
TEST(LossScaling, TheNormOfHalfGradientsDoesNotOverflow) {
  for (const bool scales : {false, true}) {
    auto weight = torch::zeros({8192}, torch::kFloat16).set_requires_grad(true);
    torch::optim::SGD sgd({weight}, 1);
    DistributedOptimizer::NamedParameters named;
    named.insert("weight", weight);
    DistributedOptimizerOptions options;
    options.clip_norm = 1;
    if (scales) options.loss_scaling.emplace();
    DistributedOptimizer optimizer(*session, sgd, named, options);
    train_step(optimizer,
               [&] { return optimizer.scale((weight.to(torch::kFloat32) * (scales ? 0.1 : 2000)).sum()); });
    EXPECT_NEAR(weight.to(torch::kFloat64).norm().item<double>(), 1, 0.01) << scales;
    EXPECT_NEAR(optimizer.gradient_norm() / (scales ? 0.1 : 2000), std::sqrt(8192), 0.1) << scales;
  }
}

// A gradient that overflows on one rank halves the factor on all of them, and the step changes nothing. Where
// the factor cannot fall any more, the gradient itself is bad.
TEST(LossScaling, AnOverflowOnOneRankLeavesTheStepOut) {
  MixedNet net, before;
  bool bad = false;
  net.second->weight.register_hook([&](const Tensor& gradient) {
    return bad && session->rank() == session->size() - 1 ? gradient * INFINITY : gradient;
  });
  torch::optim::SGD sgd(net.parameters(), 0.1);
  DistributedOptimizerOptions options;
  options.loss_scaling = LossScaling{4, 2};
  options.on_nonfinite = OnNonFinite::skip;
  DistributedOptimizer optimizer(*session, sgd, net.named_parameters(), options);
  std::vector<double> scales;
  const auto step = [&](bool is_bad) {
    bad = is_bad;
    train_step(optimizer, [&] { return optimizer.scale(net.loss(1)); });
    scales.push_back(optimizer.loss_scale());
  };
  step(true);
  EXPECT_TRUE(optimizer.overflowed());
  EXPECT_FALSE(optimizer.skipped());
  EXPECT_EQ(largest_difference(net, before), 0);
  step(false);
  EXPECT_FALSE(optimizer.overflowed());
  step(true);
  step(true);
  EXPECT_FALSE(optimizer.overflowed());
  ASSERT_TRUE(optimizer.skipped());
  EXPECT_THAT(optimizer.skipped()->ranks(), ElementsAre(session->size() - 1));
  step(false);
  step(false);
  EXPECT_THAT(scales, ElementsAre(2, 2, 1, 1, 1, 2));
  EXPECT_GT(largest_difference(net, before), 0);
}

TEST(LossScaling, RefusesWhatItCannotScale) {
  MixedNet net;
  torch::optim::SGD sgd(net.parameters(), 0.1);
  DistributedOptimizerOptions options;
  options.loss_scaling = LossScaling{1000};
  EXPECT_THROW(DistributedOptimizer(*session, sgd, net.named_parameters(), options), UserError);
  options.loss_scaling = LossScaling{};
  options.synchronization = parse_synchronization("parameters:2");
  EXPECT_THROW(DistributedOptimizer(*session, sgd, net.named_parameters(), options), UserError);
}

// Our layer computes gradients in the buckets; LibTorch's layer does not.
TEST(Autocast, OurLinearLayerIsAsGoodAsLibTorchs) {
  for (const auto precision : {Precision::bfloat16, Precision::float16}) {
    MixedNet ours;
    TwoLayers<torch::nn::Linear> theirs, exact;
    torch::optim::SGD a(ours.parameters(), 0.1), b(theirs.parameters(), 0.1), c(exact.parameters(), 0.1);
    DistributedOptimizer first(*session, a, ours.named_parameters()),
        second(*session, b, theirs.named_parameters()), third(*session, c, exact.named_parameters());
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(ours.loss(i, precision).scalar_type(), torch::kFloat32);
      step_of(first, ours.loss(i, precision));
      step_of(second, theirs.loss(i, precision));
      step_of(third, exact.loss(i));
    }
    for (const auto& parameter : ours.parameters()) EXPECT_EQ(parameter.scalar_type(), torch::kFloat32);
    const double rounding = largest_difference(theirs, exact);
    EXPECT_GT(rounding, 0);  // They really computed with fewer digits.
    EXPECT_GT(largest_difference(ours, exact), 0);
    EXPECT_LT(largest_difference(ours, exact), 2 * rounding);
    EXPECT_EQ(first.packed_bytes(), 0u);
  }
}

TEST(Autocast, EndsWithItsScope) {
  MixedNet net;
  {
    const Autocast autocast(Precision::bfloat16, torch::kCPU);
    EXPECT_EQ(net.first(torch::zeros({1, 6})).scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(net.first(torch::zeros({1, 6})).scalar_type(), torch::kFloat32);
  EXPECT_THROW(parse_precision("half"), UserError);
}

}  // namespace
}  // namespace farandole

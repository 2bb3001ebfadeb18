// Compares ranks that have parts of a batch with LibTorch's BatchNorm on the whole batch.
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

#include "farandole/base/error.h"

namespace farandole {
namespace {

using torch::Tensor;
using torch::nn::BatchNormOptions;

constexpr std::int64_t features = 5;

struct Case {
  std::vector<std::int64_t> beyond;  // dimensions behind the features
  BatchNormOptions options = BatchNormOptions(features);
};

std::vector<Case> cases() {
  return {{{}},
          {{6}},
          {{3, 4}},
          {{2, 3, 2}},
          {{3}, BatchNormOptions(features).affine(false)},
          {{3}, BatchNormOptions(features).track_running_stats(false)},
          {{3}, BatchNormOptions(features).momentum(0.3).eps(0.01)},
          {{3}, BatchNormOptions(features).momentum(std::nullopt)}};
}

Tensor reference_forward(torch::nn::BatchNorm1d& norm, const Tensor& x) {
  if (x.dim() <= 3) return norm(x);
  return norm(x.flatten(2)).view(x.sizes());
}

// Rank r has r + 1 samples; with more than two ranks, rank 1 has none.
std::vector<std::int64_t> parts() {
  std::vector<std::int64_t> result;
  for (int r = 0; r < session->size(); ++r) result.push_back(r == 1 && session->size() > 2 ? 0 : r + 2);
  return result;
}
Tensor own_part(const Tensor& all) {
  return all.split_with_sizes(parts())[static_cast<std::size_t>(session->rank())];
}

Tensor random_batch(const Case& which, torch::ScalarType type) {
  std::vector<std::int64_t> shape = {0, features};
  for (const auto rows : parts()) shape[0] += rows;
  shape.insert(shape.end(), which.beyond.begin(), which.beyond.end());
  auto x = torch::randn(shape, torch::kFloat64);
  std::vector<std::int64_t> by_feature(shape.size(), 1);
  by_feature[1] = features;
  return (x * torch::linspace(0.5, 3, features, torch::kFloat64).view(by_feature) +
          torch::linspace(-4, 9, features, torch::kFloat64).view(by_feature))
      .to(type);
}

void expect_near(const Tensor& own_one, const Tensor& reference, double tolerance, const char* what) {
  ASSERT_EQ(own_one.defined(), reference.defined()) << what;
  if (!own_one.defined()) return;
  ASSERT_EQ(own_one.sizes(), reference.sizes()) << what;
  EXPECT_TRUE(
      torch::allclose(own_one.to(torch::kFloat64), reference.to(torch::kFloat64), tolerance, tolerance))
      << what << "\n"
      << own_one << reference;
}

// LibTorch's sums in half precision are inaccurate, so the reference uses the same values in float32.
void compare_norms(const Case& which, torch::ScalarType type, double tolerance) {
  const auto whole_type = type == torch::kBFloat16 ? torch::kFloat32 : type;
  SyncBatchNorm norm(*session, which.options);
  torch::nn::BatchNorm1d whole(which.options);
  norm->to(type);
  whole->to(whole_type);
  if (which.options.affine()) {
    const torch::NoGradGuard no_grad;
    torch::manual_seed(1);
    whole->weight.copy_(torch::randn({features}));
    whole->bias.copy_(torch::randn({features}));
    for (auto* each : {&whole->weight, &whole->bias}) each->copy_(each->to(type));
    norm->weight.copy_(whole->weight);
    norm->bias.copy_(whole->bias);
  }
  for (int step = 0; step < 3; ++step) {
    torch::manual_seed(10 + step);
    const auto all = random_batch(which, type), coefficients = random_batch(which, type);
    auto x = own_part(all).detach().clone().set_requires_grad(true),
         all_x = all.to(whole_type, false, true).set_requires_grad(true);
    norm->zero_grad();
    whole->zero_grad();
    const auto y = norm(x), all_y = reference_forward(whole, all_x);
    EXPECT_EQ(y.scalar_type(), type);
    expect_near(y, own_part(all_y), tolerance, "output");
    (y * own_part(coefficients)).sum().backward();
    (all_y * coefficients.to(whole_type)).sum().backward();
    expect_near(x.grad(), own_part(all_x.grad()), 10 * tolerance, "gradient of input");
    if (!which.options.affine()) continue;
    expect_near(session->allreduce(norm->weight.grad(), ReduceOp::sum), whole->weight.grad(), 20 * tolerance,
                "gradient of weight");
    expect_near(session->allreduce(norm->bias.grad(), ReduceOp::sum), whole->bias.grad(), 20 * tolerance,
                "gradient of bias");
  }
  expect_near(norm->running_mean, whole->running_mean, tolerance, "running mean");
  expect_near(norm->running_var, whole->running_var, tolerance, "running variance");
  expect_near(norm->num_batches_tracked, whole->num_batches_tracked, 0, "batches");
  norm->eval();
  whole->eval();
  if (which.options.track_running_stats()) {
    const auto all = random_batch(which, type);
    if (own_part(all).numel() > 0)
      expect_near(norm(own_part(all)), own_part(reference_forward(whole, all.to(whole_type))), tolerance,
                  "evaluation");
  }
}

TEST(SyncBatchNorm, EqualsOneProcessInFloat64) {
  for (const auto& which : cases()) {
    SCOPED_TRACE(which.beyond.size());
    compare_norms(which, torch::kFloat64, 1e-11);
  }
}
TEST(SyncBatchNorm, EqualsOneProcessInFloat32) {
  for (const auto& which : cases()) compare_norms(which, torch::kFloat32, 1e-4);
}
TEST(SyncBatchNorm, EqualsOneProcessInHalfPrecision) {
  compare_norms({{40}}, torch::kBFloat16, 0.015);
}

TEST(SyncBatchNorm, FarFromZero) {
  torch::manual_seed(4);
  const auto all = torch::randn({session->size() * 64, features}, torch::kFloat32) * 0.1 + 1000;
  SyncBatchNorm norm(*session, BatchNormOptions(features));
  torch::nn::BatchNorm1d whole{BatchNormOptions(features)};
  whole->to(torch::kFloat64);
  const auto y = norm(all.slice(0, 64 * session->rank(), 64 * (session->rank() + 1)));
  const auto expected =
      whole(all.to(torch::kFloat64)).slice(0, 64 * session->rank(), 64 * (session->rank() + 1));
  EXPECT_LT((y - expected).abs().max().item<double>(), 0.01);
}

TEST(SyncBatchNorm, AmongAGroup) {
  const auto alone = session->new_group({0});
  if (alone == nullptr) return;
  torch::manual_seed(2);
  const auto x = torch::randn({4, features});
  SyncBatchNorm norm(*alone, BatchNormOptions(features));
  torch::nn::BatchNorm1d reference{BatchNormOptions(features)};
  EXPECT_TRUE(torch::allclose(norm(x), reference(x), 1e-5, 1e-6));
}

TEST(SyncBatchNorm, RefusesWhatCannotBe) {
  SyncBatchNorm norm(*session, BatchNormOptions(features));
  EXPECT_THROW(norm(torch::ones({2, features + 1})), UserError);
  EXPECT_THROW(norm(torch::ones({features})), UserError);
  EXPECT_THROW(norm(torch::ones({session->rank() == 0 ? 1 : 0, features})), UserError);  // one value in all
  session->barrier();
}

TEST(SyncBatchNorm, ReplacesBatchNormInSequentials) {
  using namespace torch::nn;
  torch::manual_seed(6);
  Sequential net(Conv2d(Conv2dOptions(3, 4, 3)), BatchNorm2d(4), ReLU(), Flatten(),
                 torch::nn::Linear(2 * 2 * 4, features), BatchNorm1d(features));
  auto synced = convert_sync_batchnorm(net, *session);
  const auto names = net->named_parameters().keys();
  ASSERT_EQ(synced->named_parameters().keys(), names);
  ASSERT_EQ(synced->named_buffers().keys(), net->named_buffers().keys());
  for (const auto& name : names)
    EXPECT_TRUE(synced->named_parameters()[name].is_same(net->named_parameters()[name])) << name;
  const auto reference = std::dynamic_pointer_cast<SequentialImpl>(net->clone());
  const auto all = torch::randn({session->size() * 3, 3, 4, 4});
  const auto slice = [](const Tensor& x) {
    return x.slice(0, session->rank() * 3, (session->rank() + 1) * 3);
  };
  EXPECT_TRUE(torch::allclose(synced->forward(slice(all)), slice(reference->forward(all)), 1e-4, 1e-4));
  EXPECT_TRUE(torch::allclose(net->named_buffers()["5.running_var"],
                              reference->named_buffers()["5.running_var"], 1e-4, 1e-4));
  const auto copy = std::dynamic_pointer_cast<SequentialImpl>(synced->clone());
  synced->eval();
  copy->eval();
  EXPECT_TRUE(torch::equal(copy->forward(slice(all)), synced->forward(slice(all))));
}

}  // namespace
}  // namespace farandole

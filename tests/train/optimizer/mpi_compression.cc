#include <gmock/gmock.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

#include "farandole/fusion/compression.h"
#include "farandole/train/run/training_state.h"

namespace farandole {
namespace {

constexpr const char* every_compression[] = {"none", "float16", "bfloat16", "bfloat16:between-nodes"};

torch::nn::Sequential compressed_net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(20, 40), torch::nn::Tanh(), torch::nn::Linear(40, 10));
}

// One step on this rank's data of the step; deterministic.
double train_compressed(torch::nn::Sequential& net, DistributedOptimizer& optimizer, int step) {
  torch::manual_seed(1000 * step + session->rank());
  const auto x = torch::randn({16, 20});
  torch::Tensor loss;
  train_step(optimizer, [&] { return loss = (net->forward(x) - x.slice(1, 0, 10)).pow(2).mean(); });
  return loss.item<double>();
}

TEST(CompressedGradients, TrainAndStayEqualOnAllRanks) {
  for (const auto* kind : every_compression) {
    SCOPED_TRACE(kind);
    auto net = compressed_net();
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.2).momentum(0.5));
    DistributedOptimizerOptions options;
    options.compression = parse_compression(kind);
    DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), options);
    const double first = train_compressed(net, optimizer, 0);
    double last = 0;
    for (int step = 1; step < 60; ++step) last = train_compressed(net, optimizer, step);
    EXPECT_LT(last, 0.8 * first);
    EXPECT_GT(optimizer.sent_bytes(), 0u);
    expect_equal_on_all_ranks(net->named_parameters());
  }
}

// The parameters are all that a resumed training needs: compression keeps nothing from step to step.
TEST(CompressedGradients, ContinueFromTheParametersAsIfNeverStopped) {
  for (const auto* kind : every_compression) {
    SCOPED_TRACE(kind);
    DistributedOptimizerOptions options;
    options.compression = parse_compression(kind);
    auto net = compressed_net(), resumed = compressed_net();
    torch::optim::SGD sgd(net->parameters(), 0.1), resumed_sgd(resumed->parameters(), 0.1);
    DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), options);
    DistributedOptimizer resumed_optimizer(*session, resumed_sgd, resumed->named_parameters(), options);
    for (int step = 0; step < 5; ++step) train_compressed(net, optimizer, step);
    {
      const torch::NoGradGuard no_grad;
      for (const auto& item : net->named_parameters())
        resumed->named_parameters()[item.key()].copy_(item.value());
    }
    for (int step = 5; step < 10; ++step) {
      train_compressed(net, optimizer, step);
      train_compressed(resumed, resumed_optimizer, step);
    }
    expect_same(net->named_parameters(), resumed->named_parameters());
  }
}

TEST(CompressedGradients, ContinueFromACheckpointWithErrorFeedbackOfAnEarlierVersion) {
  auto net = compressed_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  SnapshotBuilder builder;
  capture(*session, {*net, sgd}, {4, 0, 64}, builder);
  builder.add("/compression/topk:0.1/rank-0000/residual/0.weight", DType::float32,
              std::vector<std::int64_t>{40, 20});
  auto snapshot = builder.finish();
  testing::internal::CaptureStderr();
  restore(*session, {*net, sgd}, session->rank() == 0 ? &snapshot : nullptr);
  const auto said = testing::internal::GetCapturedStderr();
  if (session->rank() == 0) {
    EXPECT_THAT(said, testing::HasSubstr("error feedback of powersgd or topk, which no longer exist"));
  } else {
    EXPECT_EQ(said, "");
  }
}

}  // namespace
}  // namespace farandole

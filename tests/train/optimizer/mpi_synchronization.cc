#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

#include "farandole/base/error.h"
#include "farandole/train/torch_optimizers.h"

namespace farandole {
namespace {

using torch::Tensor;

struct Learner : torch::nn::Module {
  Learner() {
    first = register_module("first", Linear(5, 7));
    second = register_module("second", torch::nn::Linear(7, 3));
    spare = register_module("spare", torch::nn::Linear(7, 3));
    to(torch::kFloat64);
  }
  Tensor loss(int rank, int step) {
    torch::manual_seed(1000 * rank + step);
    const auto hidden = torch::tanh(first(torch::randn({4, 5}, torch::kFloat64)));
    return (rank == 0 ? second(hidden) + spare(hidden) : second(hidden)).square().mean();
  }
  Linear first{nullptr};
  torch::nn::Linear second{nullptr}, spare{nullptr};
};

std::shared_ptr<Learner> same_learner() {
  torch::manual_seed(3);
  return std::make_shared<Learner>();
}

DistributedOptimizerOptions averaging(std::int64_t every) {
  return {.synchronization = {Synchronization::Kind::parameters, every}};
}

// Computes the work of all ranks in one process.
class Everybody {
 public:
  explicit Everybody(const std::function<std::unique_ptr<torch::optim::Optimizer>(Learner&)>& make) {
    for (int r = 0; r < session->size(); ++r) {
      nets.push_back(same_learner());
      optimizers.push_back(make(*nets.back()));
    }
  }
  void step(int number) {
    for (int r = 0; r < session->size(); ++r) {
      optimizers[static_cast<std::size_t>(r)]->zero_grad();
      nets[static_cast<std::size_t>(r)]->loss(r, number).backward();
      optimizers[static_cast<std::size_t>(r)]->step();
    }
  }
  void average() {
    const torch::NoGradGuard no_grad;
    for (const auto& item : nets[0]->named_parameters()) {
      auto mean = torch::zeros_like(item.value());
      for (const auto& net : nets) mean += net->named_parameters()[item.key()] / session->size();
      for (const auto& net : nets) net->named_parameters()[item.key()].copy_(mean);
    }
  }
  std::vector<std::shared_ptr<Learner>> nets;
  std::vector<std::unique_ptr<torch::optim::Optimizer>> optimizers;
};

std::unique_ptr<torch::optim::Optimizer> momentum(Learner& net) {
  return std::make_unique<torch::optim::SGD>(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}
std::unique_ptr<torch::optim::Optimizer> adam(Learner& net) {
  return std::make_unique<torch::optim::Adam>(net.parameters(), torch::optim::AdamOptions(0.01));
}
std::unique_ptr<torch::optim::Optimizer> rms(Learner& net) {
  return std::make_unique<torch::optim::RMSprop>(net.parameters(), torch::optim::RMSpropOptions(0.01));
}

// A net that averages parameters, and all ranks' nets in this process.
struct AveragingAndAll {
  AveragingAndAll(const std::function<std::unique_ptr<torch::optim::Optimizer>(Learner&)>& make,
                  std::int64_t every)
      : all(make),
        inner(make(*net)),
        optimizer(*session, *inner, net->named_parameters(), averaging(every)) {}
  void step(int number) {
    train_step(optimizer, [&] { return net->loss(session->rank(), number); });
    all.step(number);
  }
  void expect_same_net() const {
    expect_same(net->named_parameters(),
                all.nets[static_cast<std::size_t>(session->rank())]->named_parameters(), 1e-9, 1e-12);
  }

  std::shared_ptr<Learner> net = same_learner();
  Everybody all;
  std::unique_ptr<torch::optim::Optimizer> inner;
  DistributedOptimizer optimizer;
};

TEST(ParameterAveraging, IsTheMeanOfWhatRanksTrainedAlone) {
  for (const auto& make : {momentum, adam, rms}) {
    AveragingAndAll trained(make, 3);
    for (int step = 1; step <= 8; ++step) {
      trained.step(step);
      if (step % 3 == 0) trained.all.average();
      trained.expect_same_net();
    }
    EXPECT_GE(trained.optimizer.sent_bytes(), 2 * 8u * 90u);  // two averages of 90 float64
    EXPECT_LE(trained.optimizer.sent_bytes(), 2 * trained.optimizer.gradient_bytes());
  }
}

// An average on request counts as one; the next is due the given number of steps later.
TEST(ParameterAveraging, OnDemand) {
  for (const std::int64_t every : {0, 3}) {
    AveragingAndAll trained(momentum, every);
    for (int step = 1; step <= 6; ++step) {
      trained.step(step);
      if (step == 2) trained.optimizer.average_parameters();
      if (step == 2 || (every > 0 && step == 5)) trained.all.average();
      trained.expect_same_net();
    }
  }
}

// "spare" has state on rank 0 only.
TEST(ParameterAveraging, StateBecomesTheMeanToo) {
  for (const auto& make : {momentum, adam, rms}) {
    AveragingAndAll trained(make, 0);
    auto& [net, all, inner, optimizer] = trained;
    for (int step = 1; step <= 3; ++step) trained.step(step);
    optimizer.average_parameters();
    optimizer.average_state();
    std::map<std::string, Tensor> mean;
    for (auto& other : all.optimizers) {
      for (const auto& [name, value] : export_optimizer_state(*other, numbered_parameters(*other))) {
        auto& sum = mean[name];
        if (!torch::isFloatingType(value.scalar_type()))
          sum = value;
        else
          sum = (sum.defined() ? sum : torch::zeros_like(value)) + value / session->size();
      }
    }
    const auto state = export_optimizer_state(*inner, numbered_parameters(*inner));
    ASSERT_EQ(state.size(), mean.size());
    for (const auto& [name, value] : state) EXPECT_TRUE(torch::allclose(value, mean[name])) << name;
    // Training continues and is equal on ranks with equal data.
    train_step(optimizer, [&] { return trained.net->loss(0, 4); });
    expect_equal_on_all_ranks(net->named_parameters());
  }
}

TEST(ParameterAveraging, DoesNotGoWithCompression) {
  const auto net = same_learner();
  const auto inner = momentum(*net);
  auto options = averaging(1);
  options.compression.kind = Compression::Kind::float16;
  EXPECT_THROW(DistributedOptimizer(*session, *inner, net->named_parameters(), options), UserError);
}

TEST(Synchronization, IsParsed) {
  using Kind = Synchronization::Kind;
  EXPECT_EQ(parse_synchronization("gradients"), (Synchronization{Kind::gradients, 0}));
  EXPECT_EQ(parse_synchronization("parameters:12"), (Synchronization{Kind::parameters, 12}));
  EXPECT_EQ(parse_synchronization("parameters:epoch"), (Synchronization{Kind::parameters, 0}));
  for (const auto* wrong : {"", "gradient", "parameters", "parameters:", "parameters:0", "parameters:-3",
                            "parameters:2x", "parameters:epochs"})
    EXPECT_THROW(parse_synchronization(wrong), UserError) << wrong;
}

}  // namespace
}  // namespace farandole

// Ranks that share parameters and optimizer state and each update their part compute the same bits as ranks
// that have their own.
#include <filesystem>
#include <gmock/gmock.h>
#include <limits>
#include <sstream>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include "train/mpi_session.h"

#include "farandole/base/error.h"
#include "farandole/train/replica_check.h"
#include "farandole/train/session_internals.h"
#include "farandole/train/torch_optimizers.h"

namespace farandole {
namespace {

using torch::Tensor;

constexpr std::int64_t sharding_rows = 5, sharding_features = 9;

// Odd sizes, so that parts of ranks end within tensors.
struct Branches : torch::nn::Module {
  explicit Branches(torch::ScalarType type) {
    first = register_module("first", torch::nn::Linear(sharding_features, 117));
    second = register_module("second", torch::nn::Linear(117, 61));
    spare = register_module("spare", torch::nn::Linear(117, 61));
    unused = register_module("unused", torch::nn::Linear(3, 5));
    scale = register_parameter("scale", torch::ones({1}));
    to(type);
  }
  Tensor loss(int batch, bool uses_spare) {
    torch::manual_seed(1000 * batch + session->rank());
    const auto hidden = torch::tanh(
        first(torch::randn({sharding_rows, sharding_features}, scale.options().requires_grad(false))));
    auto out = second(hidden) * scale;
    if (uses_spare) out = out + spare(hidden);
    return (out - 0.1).square().mean();
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, spare{nullptr}, unused{nullptr};
  Tensor scale;
};

std::shared_ptr<Branches> same_branches(torch::ScalarType type) {
  torch::manual_seed(3);
  return std::make_shared<Branches>(type);
}

using MakeFor = std::function<std::unique_ptr<torch::optim::Optimizer>(Branches&)>;
struct Divisible {
  std::string name;
  MakeFor make;
};

template <class Optimizer, class Options>
MakeFor with(Options options) {
  return [options](Branches& net) { return std::make_unique<Optimizer>(net.parameters(), options); };
}

// Groups that differ in weight decay, in turns, so that a bucket has several runs.
std::unique_ptr<torch::optim::Optimizer> two_groups(Branches& net) {
  std::vector<Tensor> weights, biases;
  for (const auto& item : net.named_parameters())
    (item.value().dim() > 1 ? weights : biases).push_back(item.value());
  auto decayed = std::make_unique<torch::optim::AdamWOptions>(0.01);
  decayed->weight_decay(0.3);
  auto plain = std::make_unique<torch::optim::AdamWOptions>(0.02);
  plain->weight_decay(0);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(weights, std::move(decayed));
  groups.emplace_back(biases, std::move(plain));
  return std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(0.01));
}

std::vector<Divisible> divisible() {
  using namespace torch::optim;
  return {{"SGD", with<SGD>(SGDOptions(0.05))},
          {"momentum", with<SGD>(SGDOptions(0.05).momentum(0.9).weight_decay(0.01))},
          {"Nesterov", with<SGD>(SGDOptions(0.05).momentum(0.9).nesterov(true))},
          {"Adam", with<torch::optim::Adam>(AdamOptions(0.01).weight_decay(0.02))},
          {"AMSGrad", with<torch::optim::Adam>(AdamOptions(0.01).amsgrad(true))},
          {"AdamW", with<torch::optim::AdamW>(AdamWOptions(0.01).weight_decay(0.1))},
          {"groups", two_groups},
          {"RMSprop", with<RMSprop>(RMSpropOptions(0.01))},
          {"centered", with<RMSprop>(RMSpropOptions(0.01).centered(true))},
          {"RMSprop with momentum", with<RMSprop>(RMSpropOptions(0.01).momentum(0.5).centered(true))}};
}

std::vector<Divisible> some_divisible() {
  return {divisible()[1], divisible()[5], divisible()[8]};
}

// Whether ranks can share memory: two of them are on one node.
bool has_neighbours() {
  return session->allreduce(torch::tensor(session->local_size()), ReduceOp::max).item<int>() > 1;
}

struct Training {
  Training(Shard shard, const MakeFor& make, DistributedOptimizerOptions options = {},
           torch::ScalarType type = torch::kFloat32)
      : net(same_branches(type)), inner(make(*net)) {
    options.shard = shard;
    if (options.buckets.bytes == BucketOptions().bytes) options.buckets = {9000, 3000};
    optimizer.emplace(*session, *inner, net->named_parameters(), options);
  }
  void backward(int batch) { optimizer->scale(net->loss(batch, uses_spare(batch))).backward(); }
  void step(int batch, int passes = 1) {
    optimizer->zero_grad();
    for (int pass = 0; pass < passes; ++pass) backward(batch + 1000 * pass);
    optimizer->step();
  }
  // In some steps only rank 0 has these gradients, in some all ranks, in some none.
  static bool uses_spare(int batch) { return batch % 3 == 0 ? session->rank() == 0 : batch % 3 == 1; }

  std::shared_ptr<Branches> net;
  std::unique_ptr<torch::optim::Optimizer> inner;
  std::optional<DistributedOptimizer> optimizer;
};

void expect_same_state(Training& a, Training& b) {
  const auto names = numbered_parameters(*a.inner);
  const auto of_a = export_optimizer_state(*a.inner, names), of_b = export_optimizer_state(*b.inner, names);
  ASSERT_EQ(of_a.size(), of_b.size());
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    EXPECT_EQ(of_a[i].first, of_b[i].first);
    EXPECT_TRUE(torch::equal(of_a[i].second, of_b[i].second)) << of_a[i].first;
  }
}

// Trains both ways. `step` is called for each step and side.
template <class Step>
void expect_same_bits(const std::string& what, const MakeFor& make,
                      const DistributedOptimizerOptions& options, Step step,
                      torch::ScalarType type = torch::kFloat32, int steps = 21) {
  SCOPED_TRACE(what);
  Training divided(Shard::automatic, make, options, type), whole(Shard::off, make, options, type);
  EXPECT_EQ(divided.optimizer->sharding().divided, has_neighbours()) << divided.optimizer->sharding().why_not;
  EXPECT_FALSE(whole.optimizer->sharding().divided);
  for (int i = 0; i < steps; ++i) {
    step(divided, i);
    step(whole, i);
  }
  expect_same(divided.net->named_parameters(), whole.net->named_parameters());
  expect_same_state(divided, whole);
}

const auto plain_step = [](Training& training, int i) { training.step(i); };

TEST(Sharding, GivesTheSameBitsWithEveryRule) {
  for (const auto& [name, make] : divisible()) expect_same_bits(name, make, {}, plain_step);
  for (const auto& [name, make] : {divisible()[4], divisible()[6]})
    expect_same_bits(name + " in float64", make, {}, plain_step, torch::kFloat64);
}

TEST(Sharding, GivesTheSameBitsWithEveryOption) {
  const auto adam = divisible()[5].make, momentum = divisible()[1].make;
  for (const auto& make : {adam, momentum}) {
    expect_same_bits("sum", make, {.average = false}, plain_step);
    expect_same_bits("clipped", make, {.clip_norm = 0.05}, plain_step);
    expect_same_bits("clipped in tiny buckets", make, {.clip_norm = 0.05, .buckets = {1, 1}}, plain_step);
    expect_same_bits("one bucket", make, {.buckets = {std::size_t{1} << 20, std::size_t{1} << 20}},
                     plain_step);
    expect_same_bits("a bucket for each tensor", make, {.buckets = {1, 1}}, plain_step);
    expect_same_bits("accumulated", make, {.backward_passes_per_step = 2},
                     [](Training& training, int i) { training.step(i, i == 7 ? 1 : 2); });
    expect_same_bits("synchronized by hand", make, {}, [](Training& training, int i) {
      training.optimizer->zero_grad();
      training.backward(i);
      if (i % 2 == 0) {
        training.optimizer->synchronize();
        const torch::NoGradGuard no_grad;
        for (auto& parameter : training.net->parameters())
          if (parameter.grad().defined()) parameter.mutable_grad().clamp_(-0.01, 0.01);
      }
      training.optimizer->step();
    });
    expect_same_bits("discarded", make, {}, [](Training& training, int i) {
      training.optimizer->zero_grad();
      training.backward(i + 500);
      training.step(i);
    });
  }
}

// The gradient of `scale` is not finite on the last rank in every fifth step.
void spoil_some(Training& training, const int& step) {
  training.net->scale.register_hook([&step](const Tensor& gradient) {
    const bool bad = step % 5 == 2 && session->rank() == session->size() - 1;
    return bad ? gradient * std::numeric_limits<double>::infinity() : gradient;
  });
}

TEST(Sharding, SkipsTheSameSteps) {
  for (const bool scales : {false, true}) {
    DistributedOptimizerOptions options{.clip_norm = 0.1, .on_nonfinite = OnNonFinite::skip};
    if (scales) options.loss_scaling = LossScaling{.initial = 1024, .growth_interval = 3};
    int step = 0, skipped = 0;
    const Training* spoiled[2] = {};
    expect_same_bits(scales ? "loss scaling" : "skip", divisible()[5].make, options,
                     [&](Training& training, int i) {
                       step = i;
                       if (i == 0) {
                         spoil_some(training, step);
                         spoiled[spoiled[0] != nullptr] = &training;
                       }
                       training.step(i);
                       skipped += training.optimizer->skipped() || training.optimizer->overflowed() ? 1 : 0;
                     });
    EXPECT_EQ(skipped, 8);  // Four steps on each side.
  }
}

TEST(Sharding, RefusesGradientsThatAreNotFinite) {
  Training training(Shard::automatic, divisible()[5].make);
  int step = 0;
  spoil_some(training, step);
  for (; step < 2; ++step) training.step(step);
  EXPECT_THROW(training.step(2), NonFiniteGradient);
}

TEST(Sharding, GivesTheSameBitsWhenRanksHaveUnevenBatches) {
  const auto train = [](Training& training) {
    for (int i = 0; i < 3; ++i) training.step(i);
    Join join(*session, {&*training.optimizer});
    for (int i = 0; i < 4 + 3 * session->rank(); ++i) training.step(10 + i);
    join.finish();
    for (int i = 0; i < 3; ++i) training.step(30 + i);
  };
  for (const auto& [name, make] : some_divisible()) {
    SCOPED_TRACE(name);
    Training divided(Shard::automatic, make), whole(Shard::off, make);
    train(divided);
    train(whole);
    expect_same(divided.net->named_parameters(), whole.net->named_parameters());
    expect_same_state(divided, whole);
  }
}

// Communicators that are made meanwhile take pairs of ranks for nodes.
class PairsAsNodes {
 public:
  PairsAsNodes() : nodes_(layout().nodes) {
    for (std::size_t r = 0; r < nodes_.size(); ++r) layout().nodes[r] = static_cast<int>(r / 2);
    session->use_transport("hierarchical");
  }
  ~PairsAsNodes() {
    layout().nodes = nodes_;
    session->use_transport("auto");
  }

 private:
  static RankLayout& layout() { return const_cast<RankLayout&>(session->internals().world().layout()); }
  const std::vector<int> nodes_;
};

TEST(Sharding, GivesTheSameBitsOnSeveralNodes) {
  if (session->size() < 3) return;
  const PairsAsNodes pairs;
  for (const auto& [name, make] : some_divisible()) {
    expect_same_bits(name, make, {}, plain_step);
    expect_same_bits(name + ", clipped", make, {.clip_norm = 0.05, .on_nonfinite = OnNonFinite::skip},
                     plain_step);
  }
  const auto adamw = divisible()[5].make;
  expect_same_bits("large buckets", adamw, {.buckets = {std::size_t{1} << 20, std::size_t{1} << 20}},
                   plain_step);
  expect_same_bits("rounded between nodes", adamw,
                   {.compression = parse_compression("bfloat16:between-nodes")}, plain_step);
  expect_same_bits("synchronized by hand", adamw, {}, [](Training& training, int i) {
    training.optimizer->zero_grad();
    training.backward(i);
    training.optimizer->synchronize();
    training.optimizer->step();
  });
}

TEST(Sharding, StopsWithAllRanks) {
  bool asks = false;
  Training training(Shard::automatic, divisible()[0].make,
                    {.stop_requested = [&] { return asks && session->rank() == session->size() - 1; }});
  training.step(0);
  EXPECT_FALSE(training.optimizer->stopping());
  asks = true;
  training.step(1);
  EXPECT_TRUE(training.optimizer->stopping());
}

TEST(Sharding, KeepsParametersAndStateOnceANode) {
  Training training(Shard::automatic, divisible()[5].make);
  if (!has_neighbours()) return;
  const auto sharding = training.optimizer->sharding();
  EXPECT_EQ(sharding.ranks, session->local_size());
  EXPECT_EQ(sharding.bytes_undivided, sharding.bytes * static_cast<std::size_t>(sharding.ranks));
  std::size_t numbers = 0;
  for (const auto& parameter : training.net->parameters())
    numbers += static_cast<std::size_t>(parameter.numel());
  EXPECT_GE(sharding.bytes, 3 * 4 * numbers);
  training.step(0);
  const torch::NoGradGuard no_grad;
  auto& weight = training.net->first->weight;
  auto& average =
      static_cast<torch::optim::AdamWParamState&>(*training.inner->state().at(weight.unsafeGetTensorImpl()))
          .exp_avg();
  session->barrier();
  if (session->local_rank() == session->local_size() - 1) average.fill_(8);
  session->barrier();
  EXPECT_TRUE(average.eq(8).all().item<bool>());
  session->barrier();
}

// Afterwards, each rank has its own.
TEST(Sharding, EndsWithTheOptimizer) {
  Training training(Shard::automatic, divisible()[5].make);
  training.step(0);
  const auto before = training.net->second->weight.detach().clone();
  training.optimizer.reset();
  EXPECT_TRUE(torch::equal(training.net->second->weight, before));
  const torch::NoGradGuard no_grad;
  training.net->second->weight.add_(session->rank() + 1);
  session->barrier();
  EXPECT_TRUE(torch::equal(training.net->second->weight, before + (session->rank() + 1)));
  session->barrier();
}

TEST(Sharding, FollowsWhatProgramsDoWithParameters) {
  const auto program = [](Training& training, int i) {
    training.step(i);
    const torch::NoGradGuard no_grad;
    // Every rank writes the same values.
    if (i == 3)
      for (auto& parameter : training.net->parameters()) parameter.clamp_(-0.2, 0.2);
    session->barrier();
    if (i == 5) {  // Loads what it has saved, which replaces the memory of parameters and state.
      std::stringstream net, inner;
      torch::save(training.net, net);
      torch::save(*training.inner, inner);
      session->barrier();
      torch::load(training.net, net);
      torch::load(*training.inner, inner);
    }
    if (i == 7) {
      training.net->first->weight.set_data(training.net->first->weight.clone());
    }
    if (i == 9) training.net->to(torch::kCPU, torch::kFloat32);
    if (i == 11) training.inner->state().clear();
    if (i == 13) session->broadcast(*training.net, session->size() - 1);
    if (i == 15)
      for (auto& parameter : training.net->parameters()) parameter.mul_(0.9);
    if (i == 17) training.net->scale.data().mul_(1.1);  // LibTorch's version counter does not show it.
    const bool divides = training.optimizer->options().shard == Shard::automatic && has_neighbours();
    EXPECT_EQ(training.optimizer->sharding().divided, divides) << i;
  };
  for (const auto& [name, make] : some_divisible()) expect_same_bits(name, make, {}, program);
}

// As when a checkpoint is loaded on one rank directly after the first broadcast. The tensor is so large that
// some ranks receive it later than others.
TEST(Sharding, BroadcastsEndWhenAllRanksHaveReceived) {
  const auto net = std::make_shared<torch::nn::LinearImpl>(2048, 1024);
  torch::optim::SGD inner(net->parameters(), 0.1);
  const DistributedOptimizer optimizer(*session, inner, net->named_parameters(), {.shard = Shard::automatic});
  const torch::NoGradGuard no_grad;
  for (int i = 1; i <= 20; ++i) {
    session->broadcast(*net);
    if (session->rank() == 0) net->weight.fill_(i);
    session->broadcast(*net);
    EXPECT_TRUE((net->weight == i).all().item<bool>()) << i;
    session->barrier();
  }
}

// As clipped weights are.
TEST(Sharding, StopsIfTheProgramChangesParametersInEveryStep) {
  for (const DistributedOptimizerOptions& options :
       {DistributedOptimizerOptions(), DistributedOptimizerOptions{.clip_norm = 0.05}}) {
    Training divided(Shard::automatic, divisible()[5].make, options),
        whole(Shard::off, divisible()[5].make, options),
        required(has_neighbours() ? Shard::required : Shard::off, divisible()[5].make, options);
    testing::internal::CaptureStderr();
    for (int i = 0; i < 8; ++i)
      for (auto* const training : {&divided, &whole, &required}) {
        training->step(i);
        const torch::NoGradGuard no_grad;
        training->net->first->weight.mul_(0.9);
      }
    const auto said = testing::internal::GetCapturedStderr();
    expect_same(divided.net->named_parameters(), whole.net->named_parameters());
    expect_same(required.net->named_parameters(), whole.net->named_parameters());
    if (session->local_size() == 1) continue;  // A rank that is alone on its node shares with nobody.
    EXPECT_EQ(divided.optimizer->sharding().why_not, "the program changes parameters in every step");
    EXPECT_EQ(said.find("no longer divided") != std::string::npos, session->local_rank() == 0);
    EXPECT_TRUE(required.optimizer->sharding().divided);
  }
}

// A change behind the last step; otherwise the replicas would be compared when the optimizer is destroyed.
void change_at_the_end(Training& training) {
  const torch::NoGradGuard no_grad;
  training.net->scale.mul_(1);
}

// As an Embedding with max_norm does in forward. Replicas become different then, as without sharing.
TEST(Sharding, StopsIfRanksChangeParametersInDifferentWays) {
  const auto change = [](Training& training, int i) {
    training.step(i);
    const torch::NoGradGuard no_grad;
    if (i == 3) training.net->second->weight[session->rank() % 61].mul_(0.5);
    if (i == 20) change_at_the_end(training);
  };
  expect_same_bits("rows", divisible()[5].make, {}, change);
  // Before the buckets are planned once more.
  expect_same_bits("rows after the first step", divisible()[5].make, {}, [](Training& training, int i) {
    training.step(i);
    const torch::NoGradGuard no_grad;
    if (i == 0) training.net->second->weight[session->rank() % 61].mul_(0.5);
    if (i == 20) change_at_the_end(training);
  });
  if (session->size() > 2) {
    const PairsAsNodes pairs;
    expect_same_bits("rows on several nodes", divisible()[5].make, {}, change);
    expect_same_bits("rows on one of several nodes", divisible()[5].make, {}, [](Training& training, int i) {
      training.step(i);
      const torch::NoGradGuard no_grad;
      if (i == 3 && session->rank() == 0) training.net->second->weight.mul_(0.5);
      if (i == 20) change_at_the_end(training);
    });
  }
  if (session->local_size() != session->size() || session->size() == 1) return;
  Training divided(Shard::automatic, divisible()[5].make), required(Shard::required, divisible()[5].make);
  for (int i = 0; i < 4; ++i) change(divided, i), change(required, i);
  divided.step(4);
  change_at_the_end(divided);
  EXPECT_THAT(divided.optimizer->sharding().why_not,
              testing::HasSubstr("have changed second.weight in different"));
  EXPECT_THROW(required.step(4), UserError);
}

// A clone has memory of its own, so averages of parameters work.
TEST(Sharding, ClonesAndAveragesHaveTheirOwnMemory) {
  Training training(Shard::automatic, divisible()[5].make);
  std::vector<Tensor> average;
  for (const auto& parameter : training.net->parameters()) average.push_back(parameter.detach().clone());
  for (int i = 0; i < 5; ++i) {
    training.step(i);
    const torch::NoGradGuard no_grad;
    const auto parameters = training.net->parameters();
    for (std::size_t p = 0; p < average.size(); ++p) average[p].mul_(0.9).add_(parameters[p], 0.1);
  }
  for (const auto& tensor : average) {
    auto of_root = tensor.clone();
    session->broadcast_(of_root);
    EXPECT_TRUE(torch::equal(of_root, tensor));
  }
}

// Also if only one rank has given a parameter other memory.
TEST(Sharding, ReplicaChecksFindWhatDiffers) {
  if (session->size() == 1) return;
  Training training(Shard::automatic, divisible()[5].make);
  training.step(0);
  check_replicas(*session, *training.net);
  auto& weight = training.net->first->weight;
  const auto before = weight.detach();
  if (session->rank() == session->size() - 1) weight.set_data(before + 1);
  EXPECT_THROW(check_replicas(*session, *training.net), Error);
  weight.set_data(before);
  check_replicas(*session, *training.net);
  training.step(1);
  if (session->size() < 3) return;
  const PairsAsNodes pairs;
  Training nodes(Shard::automatic, divisible()[5].make);
  nodes.step(0);
  check_replicas(*session, *nodes.net);
  auto bias = nodes.net->first->bias.detach();
  const auto before_change = bias.clone();
  session->barrier();
  if (session->rank() == 0) bias.add_(1);  // On one node.
  session->barrier();
  EXPECT_THROW(check_replicas(*session, *nodes.net), Error);
  session->barrier();
  bias.copy_(before_change);
  nodes.step(1);
}

TEST(Sharding, RefusesDifferentParametersAsBefore) {
  if (session->size() == 1) return;
  torch::manual_seed(static_cast<std::uint64_t>(session->rank()));
  auto net = std::make_shared<Branches>(torch::kFloat32);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  {
    DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), {.shard = Shard::automatic});
    EXPECT_FALSE(optimizer.sharding().divided);
    net->loss(1, true).backward();
    EXPECT_THROW(optimizer.step(), UserError);
  }
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), {.shard = Shard::automatic});
  session->broadcast(*net);
  for (int i = 0; i < 3; ++i) step_of(optimizer, net->loss(i, true));
  EXPECT_EQ(optimizer.sharding().divided, has_neighbours());
  expect_equal_on_all_ranks(net->named_parameters());
}

TEST(Sharding, SaysWhyNot) {
  const auto reason = [](const MakeFor& make, DistributedOptimizerOptions options = {},
                         torch::ScalarType type = torch::kFloat32) {
    Training training(Shard::automatic, make, options, type);
    training.step(1);
    EXPECT_FALSE(training.optimizer->sharding().divided);
    std::string refused;
    try {
      Training(Shard::required, make, options, type);
    } catch (const UserError& error) {
      refused = error.what();
    }
    EXPECT_THAT(refused, testing::HasSubstr(training.optimizer->sharding().why_not));
    return training.optimizer->sharding().why_not;
  };
  const auto sgd = divisible()[0].make;
  if (session->size() == 1) {
    EXPECT_EQ(reason(sgd), "there is one rank");
    return;
  }
  EXPECT_EQ(reason(with<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1))),
            "the optimizer is not SGD, Adam, AdamW or RMSprop");
  EXPECT_EQ(reason(sgd, {.compression = parse_compression("bfloat16")}), "gradients are compressed");
  EXPECT_EQ(reason(sgd, {.synchronization = {Synchronization::Kind::parameters, 0}}),
            "the ranks average parameters");
  EXPECT_EQ(reason(sgd, {}, torch::kBFloat16),
            "there are parameters of other types than float32 and float64");
  if (!has_neighbours()) return;
  Training first(Shard::required, sgd);
  EXPECT_TRUE(first.optimizer->sharding().divided);
  torch::optim::SGD second(first.net->parameters(), 0.1);
  DistributedOptimizer also(*session, second, first.net->named_parameters(), {.shard = Shard::automatic});
  EXPECT_EQ(also.sharding().why_not, "another optimizer has the same parameters");
}

TEST(Sharding, EndsWhenAStepTakesAClosure) {
  const auto evaluated = [](Training& training, int i) {
    if (i < 4) return training.step(i);
    training.optimizer->step([&] {
      training.optimizer->zero_grad();
      const auto loss = training.net->loss(i, true);
      loss.backward();
      return loss;
    });
  };
  Training divided(Shard::automatic, divisible()[5].make), whole(Shard::off, divisible()[5].make);
  for (int i = 0; i < 8; ++i) {
    evaluated(divided, i);
    evaluated(whole, i);
  }
  expect_same(divided.net->named_parameters(), whole.net->named_parameters());
  if (!has_neighbours()) return;
  EXPECT_EQ(divided.optimizer->sharding().why_not, "step() takes a closure");
  Training required(Shard::required, divisible()[5].make);
  EXPECT_THROW(evaluated(required, 4), UserError);
}

TEST(Sharding, ContinuesWithAndWithoutIt) {
  for (const auto before : {Shard::automatic, Shard::off}) {
    for (const auto after : {Shard::automatic, Shard::off}) {
      Training whole(Shard::off, divisible()[5].make), first(before, divisible()[5].make),
          second(after, divisible()[5].make);
      for (int i = 0; i < 12; ++i) whole.step(i);
      for (int i = 0; i < 6; ++i) first.step(i);
      const auto names = numbered_parameters(*first.inner);
      NamedTensors state;
      for (const auto& [name, tensor] : export_optimizer_state(*first.inner, names))
        state.emplace_back(name, tensor.clone());
      import_optimizer_state(*second.inner, names, state);
      {
        const torch::NoGradGuard no_grad;
        for (const auto& item : first.net->named_parameters())
          second.net->named_parameters()[item.key()].copy_(item.value());
      }
      for (int i = 6; i < 12; ++i) second.step(i);
      expect_same(second.net->named_parameters(), whole.net->named_parameters());
      expect_same_state(second, whole);
    }
  }
}

}  // namespace
}  // namespace farandole

// Compares fused updates of whole buckets with torch::optim's own step on the same gradients.
#include <filesystem>
#include <gtest/gtest.h>
#include <set>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim.h>
#include <torch/serialize.h>
#include <torch/utils.h>
#include <unistd.h>

#include "train/mpi_session.h"

#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/torch_optimizers.h"

namespace farandole {
namespace {

using torch::Tensor;
using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<Tensor>)>;

std::vector<std::pair<std::string, Make>> fused_optimizers() {
  using namespace torch::optim;
  const auto sgd = [](SGDOptions o) {
    return [o](std::vector<Tensor> p) { return std::make_unique<SGD>(std::move(p), o); };
  };
  const auto adam = [](AdamOptions o) {
    return [o](std::vector<Tensor> p) { return std::make_unique<Adam>(std::move(p), o); };
  };
  const auto adamw = [](AdamWOptions o) {
    return [o](std::vector<Tensor> p) { return std::make_unique<AdamW>(std::move(p), o); };
  };
  const auto rmsprop = [](RMSpropOptions o) {
    return [o](std::vector<Tensor> p) { return std::make_unique<RMSprop>(std::move(p), o); };
  };
  return {{"plain SGD", sgd(SGDOptions(0.05))},
          {"SGD with decay", sgd(SGDOptions(0.05).weight_decay(0.1))},
          {"momentum", sgd(SGDOptions(0.05).momentum(0.9))},
          {"damped momentum", sgd(SGDOptions(0.05).momentum(0.9).dampening(0.3).weight_decay(0.01))},
          {"Nesterov", sgd(SGDOptions(0.05).momentum(0.8).nesterov(true).weight_decay(0.01))},
          {"Adam", adam(AdamOptions(0.01))},
          {"Adam with decay", adam(AdamOptions(0.01).weight_decay(0.1).betas({0.8, 0.95}))},
          {"AMSGrad", adam(AdamOptions(0.01).amsgrad(true))},
          {"Adam without epsilon", adam(AdamOptions(0.01).eps(0))},
          {"AdamW", adamw(AdamWOptions(0.01).weight_decay(0.1))},
          {"AMSGrad W", adamw(AdamWOptions(0.01).amsgrad(true))},
          {"RMSprop", rmsprop(RMSpropOptions(0.01))},
          {"RMSprop with momentum", rmsprop(RMSpropOptions(0.01).momentum(0.5).weight_decay(0.1))},
          {"centered RMSprop", rmsprop(RMSpropOptions(0.01).centered(true))}};
}

// Shapes with padding; one tensor is transposed in memory, one is empty, and one is a scalar.
Parameters some_parameters(torch::ScalarType type = torch::kFloat32) {
  torch::manual_seed(3);
  Parameters result;
  const auto add = [&](const std::string& name, const Tensor& value) {
    result.insert(name, value.to(type).set_requires_grad(true));
  };
  add("a", torch::randn({3, 5}));
  add("b", torch::randn({16}));
  add("turned", torch::randn({7, 9}).t());
  add("empty", torch::randn({0, 4}));
  add("scalar", torch::randn({}));
  add("c", torch::randn({257}));
  return result;
}

// Every gradient depends on the parameter, the step and the rank. Parameters in `without` have no gradient.
void backward(const Parameters& parameters, int step, int rank, const std::set<std::string>& without = {}) {
  Tensor loss = torch::zeros({}, parameters.items().front().value().options().requires_grad(false));
  int i = 0;
  for (const auto& item : parameters) {
    torch::manual_seed(1000 * step + 10 * i++ + rank);
    const auto target = torch::randn(item.value().sizes(), torch::kFloat64).to(item.value().scalar_type());
    if (!without.contains(item.key())) loss = loss + (item.value() - target).pow(2).sum();
  }
  loss.backward();
}

void backward_of_all(const Parameters& parameters, int step, const std::set<std::string>& without = {}) {
  for (int rank = 0; rank < session->size(); ++rank) backward(parameters, step, rank, without);
  for (const auto& item : parameters)
    if (item.value().grad().defined()) item.value().mutable_grad().div_(session->size());
}

void expect_same_state(torch::optim::Optimizer& a, torch::optim::Optimizer& b, double tolerance) {
  const auto names = numbered_parameters(a);
  const auto left = export_optimizer_state(a, names), right = export_optimizer_state(b, names);
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].first, right[i].first);
    EXPECT_TRUE(torch::allclose(left[i].second, right[i].second, tolerance, tolerance)) << left[i].first;
    EXPECT_EQ(left[i].second.storage().nbytes(), right[i].second.storage().nbytes()) << left[i].first;
  }
}

TEST(BucketOptimizer, EqualsTheOptimizersOwnStep) {
  for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kBFloat16}) {
    const double tolerance = type == torch::kFloat32 ? 2e-5 : type == torch::kFloat64 ? 1e-9 : 0.1;
    for (const auto& [name, make] : fused_optimizers()) {
      SCOPED_TRACE(name + " " + torch::toString(type));
      // Their first steps depend on the signs of the gradients only, which the averages may round to zero.
      const bool by_sign = name == "Adam without epsilon" || name.find("RMSprop") != std::string::npos;
      if (type == torch::kBFloat16 && by_sign) continue;
      const auto own = some_parameters(type), alone = some_parameters(type);
      const auto inner = make(own.values()), reference = make(alone.values());
      DistributedOptimizer optimizer(*session, *inner, own, {.buckets = {600, 100}});
      for (int step = 0; step < 12; ++step) {
        const std::set<std::string> without =
            step % 3 == 1 ? std::set<std::string>{"b", "c"} : std::set<std::string>{};
        for (auto* each : {inner.get(), reference.get()})
          for (auto& group : each->param_groups()) group.options().set_lr(0.02 / (1 + step));
        optimizer.zero_grad();
        backward(own, step, session->rank(), without);
        optimizer.step();
        reference->zero_grad();
        backward_of_all(alone, step, without);
        reference->step();
      }
      expect_same(own, alone, tolerance, tolerance);
      expect_same_state(*inner, *reference, tolerance);
      expect_equal_on_all_ranks(own);
    }
  }
}

TEST(BucketOptimizer, ClipsWithinTheKernelAsBetweenTheHalves) {
  for (const auto type : {torch::kFloat32, torch::kFloat64}) {
    for (const auto& [name, make] : fused_optimizers()) {
      SCOPED_TRACE(name);
      const auto own = some_parameters(type), halves = some_parameters(type), alone = some_parameters(type);
      const auto inner = make(own.values()), other = make(halves.values()), reference = make(alone.values());
      // If ranks divide the update, grad() has the factor only in the own part.
      const DistributedOptimizerOptions options{.clip_norm = 0.7, .buckets = {600, 100}, .shard = Shard::off};
      DistributedOptimizer optimizer(*session, *inner, own, options);
      DistributedOptimizer in_halves(*session, *other, halves, options);
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        backward(own, step, session->rank());
        optimizer.step();
        in_halves.zero_grad();
        backward(halves, step, session->rank());
        in_halves.synchronize();
        in_halves.step();
        reference->zero_grad();
        backward_of_all(alone, step);
        const double norm = torch::nn::utils::clip_grad_norm_(alone.values(), 0.7);
        reference->step();
        EXPECT_NEAR(optimizer.gradient_norm(), norm, 1e-5 * norm);
        EXPECT_NEAR(in_halves.gradient_norm(), norm, 1e-5 * norm);
        for (const auto& item : own)
          EXPECT_TRUE(torch::allclose(item.value().grad(), halves[item.key()].grad(), 1e-4, 1e-6));
      }
      const double tolerance = type == torch::kFloat32 ? 5e-5 : 1e-9;
      expect_same(own, alone, tolerance, tolerance);
      expect_same(halves, alone, tolerance, tolerance);
      expect_equal_on_all_ranks(own);
    }
  }
}

// Groups with different options, parameters that no optimizer has, and several element types.
TEST(BucketOptimizer, GroupsAndParametersOutsideOfThem) {
  using namespace torch::optim;
  const auto build = [] {
    auto parameters = some_parameters();
    parameters.insert("half", torch::linspace(-1, 1, 40).to(torch::kBFloat16).set_requires_grad(true));
    parameters.insert("double", torch::linspace(-1, 1, 40, torch::kFloat64).set_requires_grad(true));
    for (const auto* frozen : {"scalar", "empty"}) parameters[frozen].requires_grad_(false);
    return parameters;
  };
  const auto make = [](const Parameters& p) {
    std::vector<OptimizerParamGroup> groups;
    groups.emplace_back(std::vector<Tensor>{p["a"], p["turned"], p["half"]},
                        std::make_unique<AdamWOptions>(AdamWOptions(0.01).weight_decay(0.2)));
    groups.emplace_back(std::vector<Tensor>{p["b"], p["c"], p["double"]},
                        std::make_unique<AdamWOptions>(AdamWOptions(0.02).weight_decay(0)));
    return std::make_unique<AdamW>(std::move(groups));  // not "scalar", not "empty"
  };
  const auto own = build(), alone = build();
  const auto inner = make(own), reference = make(alone);
  DistributedOptimizer optimizer(*session, *inner, own, {.clip_norm = 5, .buckets = {1000, 100}});
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    backward(own, step, session->rank());
    optimizer.step();
    for (const auto& item : alone) item.value().mutable_grad() = Tensor();
    backward_of_all(alone, step);
    std::vector<Tensor> with_gradient = alone.values();
    torch::nn::utils::clip_grad_norm_(with_gradient, 5);
    reference->step();
  }
  EXPECT_TRUE(torch::equal(own["scalar"], some_parameters()["scalar"]));
  for (const auto& item : own)
    EXPECT_TRUE(torch::allclose(item.value(), alone[item.key()], item.key() == "half" ? 0.1 : 2e-5, 2e-3))
        << item.key();
}

// Values that users put in the place of parameters, state, options or gradients are used.
TEST(BucketOptimizer, TakesOverWhatIsReplaced) {
  for (const auto& [name, make] : fused_optimizers()) {
    SCOPED_TRACE(name);
    const auto own = some_parameters(), alone = some_parameters();
    const auto inner = make(own.values()), reference = make(alone.values());
    DistributedOptimizer optimizer(*session, *inner, own, {.buckets = {600, 100}});
    const auto both = [&](int step, const std::function<void(const Parameters&)>& change_gradients) {
      optimizer.zero_grad();
      backward(own, step, session->rank());
      optimizer.synchronize();
      change_gradients(own);
      optimizer.step();
      reference->zero_grad();
      backward_of_all(alone, step);
      change_gradients(alone);
      reference->step();
    };
    both(0, [](const auto&) {});
    {
      const torch::NoGradGuard no_grad;
      for (const auto* parameters : {&own, &alone}) (*parameters)["a"].set_(torch::full({3, 5}, 0.25));
    }
    both(1, [](const auto& p) {
      p["a"].mutable_grad() = p["a"].grad() * 3;
      p["b"].mutable_grad().clamp_(-0.1, 0.1);
      p["c"].mutable_grad() = Tensor();
    });
    const auto names = numbered_parameters(*reference);
    NamedTensors copies;
    for (const auto& [key, value] : export_optimizer_state(*reference, names))
      copies.emplace_back(key, value.clone());
    import_optimizer_state(*inner, names, copies);
    both(2, [](const auto&) {});
    import_optimizer_state(*inner, names, {});  // begin anew
    import_optimizer_state(*reference, names, {});
    both(3, [](const auto&) {});
    for (auto* each : {inner.get(), reference.get()}) each->param_groups()[0].options().set_lr(0.001);
    both(4, [](const auto&) {});
    expect_same(own, alone, 5e-5, 5e-5);
    expect_same_state(*inner, *reference, 5e-5);
  }
}

// Saved and loaded by LibTorch, which saves whole storages and gives parameters new ones.
TEST(BucketOptimizer, SurvivesTorchSaveAndLoad) {
  const auto folder = std::filesystem::temp_directory_path() / ("farandole-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  for (const auto& [name, make] : fused_optimizers()) {
    SCOPED_TRACE(name);
    torch::manual_seed(5);
    torch::nn::Linear one(100, 100), two(100, 100);
    const auto first = make(one->parameters());
    auto second = make(two->parameters());
    DistributedOptimizer a(*session, *first, one->named_parameters()),
        b(*session, *second, two->named_parameters());
    const auto step = [&](torch::nn::Linear& net, DistributedOptimizer& optimizer, int seed) {
      torch::manual_seed(seed);
      train_step(optimizer, [&] { return net(torch::randn({4, 100})).pow(2).mean(); });
    };
    for (int i = 0; i < 3; ++i) step(one, a, i);
    const auto model = folder / "model.pt", optimizer = folder / "optimizer.pt";
    torch::save(one, model.string());
    torch::save(*first, optimizer.string());
    EXPECT_LT(std::filesystem::file_size(model), 100 * 101 * sizeof(float) + 8000);
    torch::load(two, model.string());
    torch::load(*second, optimizer.string());
    for (int i = 3; i < 6; ++i) {
      step(one, a, i);
      step(two, b, i);
    }
    EXPECT_TRUE(torch::equal(one->weight, two->weight));
    EXPECT_TRUE(torch::equal(one->bias, two->bias));
  }
  std::filesystem::remove_all(folder);
}

TEST(BucketOptimizer, ParametersOutliveTheOptimizer) {
  const auto own = some_parameters(), before = some_parameters();
  {
    torch::optim::SGD sgd(own.values(), 0.1);
    const DistributedOptimizer optimizer(*session, sgd, own);
  }
  expect_same(own, before);
}

// As with torch::optim, a kept graph must detect that parameters have changed.
TEST(BucketOptimizer, AutogradNoticesTheUpdate) {
  torch::nn::Linear net(4, 4);
  auto x = torch::randn({2, 4}, torch::requires_grad());
  torch::optim::SGD sgd(net->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters());
  auto loss = net(x).pow(2).sum();
  loss.backward({}, /*retain_graph=*/true);
  optimizer.step();
  optimizer.zero_grad();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(BucketOptimizer, SharedParametersTrainOnce) {
  const auto run = [](bool shared) {
    torch::manual_seed(2);
    torch::nn::Linear net(6, 6);
    Parameters named;
    named.insert("weight", net->weight);
    named.insert("bias", net->bias);
    if (shared) named.insert("head.weight", net->weight);
    torch::optim::Adam adam(net->parameters(), 0.1);
    DistributedOptimizer optimizer(*session, adam, named);
    for (int i = 0; i < 3; ++i) {
      torch::manual_seed(i);
      train_step(optimizer, [&] { return net(net(torch::randn({2, 6}))).pow(2).sum(); });
    }
    return net->weight.detach().clone();
  };
  EXPECT_TRUE(torch::equal(run(true), run(false)));
}

// The graph of the gradient: a penalty on the gradient needs two backward passes.
TEST(BucketOptimizer, GradientsOfGradients) {
  torch::manual_seed(4);
  torch::nn::Linear net(3, 1), alone(3, 1);
  {
    const torch::NoGradGuard no_grad;
    alone->weight.copy_(net->weight);
    alone->bias.copy_(net->bias);
  }
  torch::optim::SGD sgd(net->parameters(), 0.1), reference(alone->parameters(), 0.1);
  DistributedOptimizer optimizer(*session, sgd, net->named_parameters(), {.backward_passes_per_step = 2});
  const auto x = torch::randn({5, 3});
  const auto go = [&](torch::nn::Linear& model) {
    const auto loss = torch::tanh(model(x)).pow(2).mean();
    loss.backward({}, std::nullopt, /*create_graph=*/true);
    model->weight.grad().pow(2).sum().backward();
  };
  for (int i = 0; i < 3; ++i) {
    optimizer.zero_grad();
    go(net);
    optimizer.step();
    reference.zero_grad();
    go(alone);
    reference.step();
  }
  expect_same(net->named_parameters(), alone->named_parameters(), 1e-5, 1e-6);
}

}  // namespace
}  // namespace farandole

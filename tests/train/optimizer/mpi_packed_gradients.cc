// Which gradients are copied into buckets, in memory of the host and of the test double of a device.
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include "lane.h"
#include "train/device_session.h"

namespace farandole {
namespace {

using torch::Tensor;

// Every kind of parameter, used in any number of ways. `foreign` counts the bytes of gradients in a step that
// LibTorch computes in memory of its own.
struct ManyKinds : torch::nn::Module {
  ManyKinds() {
    torch::manual_seed(4);
    rows = register_module("rows", Embedding(11, 8));
    rows_of_libtorch = register_module("rows_of_libtorch", torch::nn::Embedding(11, 8));
    once = register_module("once", Linear(8, 8));
    twice = register_module("twice", Linear(8, 8));
    seldom = register_module("seldom", Linear(torch::nn::LinearOptions(8, 8).bias(false)));
    layer = register_module("layer", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
    batch = register_module("batch", torch::nn::BatchNorm1d(8));
    filter = register_module("filter", torch::nn::Conv1d(torch::nn::Conv1dOptions(1, 1, 3).padding(1)));
    tied = register_module("tied", Linear(torch::nn::LinearOptions(8, 11).bias(false)));
    tied_inner = register_module("tied_inner", Linear(torch::nn::LinearOptions(8, 11).bias(false)));
    tied_inner->weight = tied->weight;
    tied_rows = register_module("tied_rows", Embedding(torch::nn::EmbeddingOptions(11, 8)));
    tied_rows->weight = tied->weight;
  }
  Tensor loss(std::mt19937& random) {
    torch::manual_seed(static_cast<int>(random() % 1000));
    foreign = 0;
    const auto is_used = [&](std::initializer_list<Tensor> of_libtorch) {
      if (random() % 2 != 0) return false;
      for (const auto& each : of_libtorch) foreign += each.nbytes();
      return true;
    };
    auto y = torch::randn({5, 8});
    if (is_used({})) y = y + rows(torch::randint(11, {5}));
    if (is_used({rows_of_libtorch->weight})) y = y + rows_of_libtorch(torch::randint(11, {5}));
    if (is_used({})) y = y + tied_rows(torch::randint(11, {5}));
    if (is_used({})) y = once(y);
    if (is_used({})) y = twice(torch::tanh(twice(y)));
    if (is_used({})) y = seldom(y);
    if (is_used({layer->weight, layer->bias})) y = layer(y);
    if (is_used({batch->weight, batch->bias})) y = batch(y);
    if (is_used({filter->weight, filter->bias})) y = filter(y.unsqueeze(1)).squeeze(1);
    if (is_used({})) y = y + tied_inner(y).slice(1, 0, 8);
    return tied(y).square().mean();
  }
  Embedding rows{nullptr}, tied_rows{nullptr};
  torch::nn::Embedding rows_of_libtorch{nullptr};
  Linear once{nullptr}, twice{nullptr}, seldom{nullptr}, tied{nullptr}, tied_inner{nullptr};
  torch::nn::LayerNorm layer{nullptr};
  torch::nn::BatchNorm1d batch{nullptr};
  torch::nn::Conv1d filter{nullptr};
  std::size_t foreign = 0;
};

TEST(PackedGradients, OnlyGradientsThatLibTorchMakesInItsOwnMemoryArePacked) {
  const auto first = seed(13);
  SCOPED_TRACE(testing::Message() << "seed " << first);
  for (const bool on_device : {false, true}) {
    ManyKinds net;
    std::optional<WithDevice> device;
    if (on_device) device.emplace();
    // As in torch::optim, a parameter that two modules share is given once.
    torch::OrderedDict<std::string, Tensor> parameters;
    std::vector<Tensor> tensors;
    for (const auto& item : net.named_parameters())
      if (!item.key().starts_with("tied_")) {
        parameters.insert(item.key(), item.value());
        tensors.push_back(item.value());
      }
    torch::optim::SGD sgd(tensors, 0.01);
    DistributedOptimizer optimizer(*session, sgd, parameters, {.buckets = {400, 200}});
    std::mt19937 random(first);
    for (int step = 0; step < 25; ++step) {
      optimizer.zero_grad();
      const auto before = optimizer.packed_bytes();
      net.loss(random).backward();
      optimizer.step();
      EXPECT_EQ(optimizer.packed_bytes() - before, net.foreign)
          << step << (on_device ? " on the device" : "");
    }
    optimizer.confirm();
  }
}

}  // namespace
}  // namespace farandole

// The models: names and sizes as in PyTorch, outputs compared with independent
// computations, refusals, and learning.
#include <cmath>
#include <gmock/gmock.h>
#include <map>
#include <numeric>
#include <torch/optim.h>
#include <torch/utils.h>

#include "trainer/data_fixtures.h"

#include "farandole/train/distributed_sampler.h"
#include "farandole/trainer/models/gpt.h"
#include "farandole/trainer/models/model.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const DataShape digits{.input = {1, 28, 28}, .classes = 10, .text = false};

DataShape text_of(std::int64_t context) {
  return {.input = {context}, .classes = 256, .text = true};
}

ModelOptions small_gpt() {
  return {.name = "gpt", .layers = 2, .width = 24, .heads = 3, .context = 10, .dropout = 0};
}

std::map<std::string, torch::Tensor> parameters_of(const Model& model) {
  std::map<std::string, torch::Tensor> parameters;
  for (const auto& parameter : model.named_parameters())
    parameters[parameter.key()] = parameter.value().detach();
  return parameters;
}

std::int64_t count_of(const Model& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

// Weights and images in the order of GPUs give the same numbers, except for rounding.
TEST(MnistNet, ComputesTheSameWithChannelsLast) {
  torch::manual_seed(5);
  const auto model = make_model({.name = "mnist"}, digits);
  model->eval();
  const auto x = torch::randn({6, 1, 28, 28});
  const auto expected = model->forward(x);
  use_channels_last(*model);
  const auto names = model->named_parameters();
  EXPECT_TRUE(names["conv2.weight"].is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(
      torch::allclose(model->forward(x.contiguous(torch::MemoryFormat::ChannelsLast)), expected, 1e-4, 1e-5));
}

TEST(MnistNet, HasTheNamesAndSizesOfTheExample) {
  const auto model = make_model({.name = "mnist"}, digits);
  EXPECT_EQ(count_of(*model), 21840);
  std::vector<std::string> names;
  for (const auto& parameter : model->named_parameters()) names.push_back(parameter.key());
  EXPECT_THAT(names, ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight",
                                 "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_TRUE(model->named_modules().contains("conv2_drop"));
  EXPECT_EQ(parameters_of(*model)["conv2.weight"].sizes(), (std::vector<std::int64_t>{20, 10, 5, 5}));
}

// If all weights of a layer have one value, every step can be computed by hand.
TEST(MnistNet, ComputesWhatTheHandComputes) {
  const auto model = make_model({.name = "mnist"}, digits);
  model->eval();
  torch::NoGradGuard no_grad;
  auto p = parameters_of(*model);
  p["conv1.weight"].fill_(0.02);
  p["conv1.bias"].fill_(-0.1);
  p["conv2.weight"].fill_(0.004);
  p["conv2.bias"].fill_(0.3);
  p["fc1.weight"].fill_(0.001);
  p["fc1.bias"].fill_(0.05);
  p["fc2.weight"].zero_();
  p["fc2.weight"][7].fill_(0.02);
  p["fc2.bias"].fill_(0.5);
  const double first = 25 * 0.02 * 0.6 - 0.1;  // 0.2
  const double second = 250 * 0.004 * first + 0.3;
  const double third = 320 * 0.001 * second + 0.05;
  const double seventh = 50 * 0.02 * third;  // above the other classes
  const double normalizer = std::log(9 + std::exp(seventh));
  const auto output = model->forward(torch::full({2, 1, 28, 28}, 0.6));
  ASSERT_EQ(output.sizes(), (std::vector<std::int64_t>{2, 10}));
  EXPECT_NEAR(output[1][7].item<double>(), seventh - normalizer, 1e-5);
  EXPECT_NEAR(output[0][3].item<double>(), -normalizer, 1e-5);
  const auto score = model->score(output, torch::tensor({7, 3}, torch::kInt64));
  EXPECT_EQ(score.count, 2);
  EXPECT_EQ(score.correct, 1);
  EXPECT_NEAR(score.loss_sum, 2 * normalizer - seventh, 1e-5);
}

TEST(MnistNet, PoolsTheMaximumAndDropsOnlyInTraining) {
  const auto model = make_model({.name = "mnist"}, digits);
  const auto x = torch::randn({3, 1, 28, 28});
  EXPECT_FALSE(torch::equal(model->forward(x), model->forward(x)));
  model->eval();
  EXPECT_TRUE(torch::equal(model->forward(x), model->forward(x)));
  auto p = parameters_of(*model);
  const auto a = torch::max_pool2d(torch::conv2d(x, p["conv1.weight"], p["conv1.bias"]), 2).relu();
  const auto b = torch::max_pool2d(torch::conv2d(a, p["conv2.weight"], p["conv2.bias"]), 2).relu();
  const auto c = torch::linear(b.reshape({3, 320}), p["fc1.weight"], p["fc1.bias"]).relu();
  const auto d = torch::linear(c, p["fc2.weight"], p["fc2.bias"]);
  EXPECT_TRUE(torch::allclose(model->forward(x), d - d.exp().sum(1, true).log(), 1e-4, 1e-5));
}

TEST(Mlp, IsLinearLayersWithReluBetween) {
  const auto model = make_model({.name = "mlp", .layers = 3, .width = 7}, {.input = {2, 5}, .classes = 4});
  EXPECT_EQ(count_of(*model), 10 * 7 + 7 + 7 * 7 + 7 + 7 * 4 + 4);
  auto p = parameters_of(*model);
  const auto x = torch::randn({6, 2, 5});
  auto y = x.reshape({6, 10});
  y = torch::linear(y, p["fc1.weight"], p["fc1.bias"]).clamp_min(0);
  y = torch::linear(y, p["fc2.weight"], p["fc2.bias"]).clamp_min(0);
  y = torch::linear(y, p["fc3.weight"], p["fc3.bias"]);
  EXPECT_TRUE(torch::allclose(model->forward(x), y));
  const auto flat = make_model({.name = "mlp", .layers = 1, .width = 99}, {.input = {10}, .classes = 2});
  EXPECT_EQ(count_of(*flat), 22);
}

TEST(Gpt, HasTheNamesOfGpt2) {
  const auto model = make_model(small_gpt(), text_of(10));
  const auto p = parameters_of(*model);
  const std::int64_t block = 12 * 24 * 24 + 13 * 24;
  EXPECT_EQ(count_of(*model), 256 * 24 + 10 * 24 + 2 * block + 2 * 24 + 256 * 24);
  for (const auto* name : {"wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.attn.c_attn.weight",
                           "h.0.attn.c_attn.bias", "h.1.attn.c_proj.weight", "h.1.ln_2.bias",
                           "h.1.mlp.c_fc.weight", "h.1.mlp.c_proj.bias", "ln_f.weight", "lm_head.weight"}) {
    EXPECT_TRUE(p.contains(name)) << name;
  }
  EXPECT_EQ(p.size(), 2U + 2 * 12 + 2 + 1);
  EXPECT_EQ(p.at("h.0.attn.c_attn.weight").sizes(), (std::vector<std::int64_t>{72, 24}));
  EXPECT_NEAR(p.at("wte.weight").std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(p.at("h.0.mlp.c_proj.weight").std().item<double>(), 0.01, 0.001);
  EXPECT_EQ(p.at("h.0.mlp.c_fc.bias").abs().max().item<double>(), 0);
  EXPECT_EQ(p.at("ln_f.weight").min().item<double>(), 1);
}

// Repeats the forward pass head by head, with a mask and a softmax instead of the fused attention.
torch::Tensor plain_gpt(std::map<std::string, torch::Tensor> p, const torch::Tensor& x, std::int64_t heads) {
  const auto t = x.size(1), width = p["wte.weight"].size(1), each = width / heads;
  const auto linear = [&](const torch::Tensor& in, const std::string& name) {
    return torch::linear(in, p[name + ".weight"], p[name + ".bias"]);
  };
  const auto norm = [&](const torch::Tensor& in, const std::string& name) {
    const auto centred = in - in.mean(-1, true);
    return centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * p[name + ".weight"] +
           p[name + ".bias"];
  };
  const auto mask = torch::full({t, t}, -INFINITY).triu(1);
  auto y = torch::embedding(p["wte.weight"], x) + p["wpe.weight"].slice(0, 0, t);
  for (int layer = 0; p.contains("h." + std::to_string(layer) + ".ln_1.weight"); ++layer) {
    const auto name = "h." + std::to_string(layer) + ".";
    const auto qkv = linear(norm(y, name + "ln_1"), name + "attn.c_attn").split(width, -1);
    std::vector<torch::Tensor> outputs;
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto part = [&](const torch::Tensor& all) { return all.narrow(-1, h * each, each); };
      const auto scores =
          part(qkv[0]).matmul(part(qkv[1]).transpose(1, 2)) / std::sqrt(static_cast<double>(each));
      outputs.push_back((scores + mask).softmax(-1).matmul(part(qkv[2])));
    }
    y = y + linear(torch::cat(outputs, -1), name + "attn.c_proj");
    const auto inner = linear(norm(y, name + "ln_2"), name + "mlp.c_fc");
    const auto gelu = 0.5 * inner * (1 + (std::sqrt(2 / M_PI) * (inner + 0.044715 * inner.pow(3))).tanh());
    y = y + linear(gelu, name + "mlp.c_proj");
  }
  return norm(y, "ln_f").matmul(p["lm_head.weight"].t());
}

TEST(Gpt, ComputesWhatAPlainImplementationComputes) {
  const auto model = make_model(small_gpt(), text_of(10));
  {
    torch::NoGradGuard no_grad;  // large values, so that nothing hides behind the small initial ones
    for (auto& parameter : model->parameters()) parameter.normal_(0, 0.5);
  }
  for (const std::int64_t t : {1, 4, 10}) {
    const auto x = torch::randint(256, {3, t}, torch::kInt64);
    const auto output = model->forward(x);
    ASSERT_EQ(output.sizes(), (std::vector<std::int64_t>{3, t, 256}));
    EXPECT_TRUE(torch::allclose(output, plain_gpt(parameters_of(*model), x, 3), 1e-3, 1e-3));
  }
  EXPECT_ANY_THROW(model->forward(torch::zeros({1, 11}, torch::kInt64)));
}

TEST(Gpt, SeesNoByteToComeAndStartsAtChance) {
  const auto model = make_model(small_gpt(), text_of(10));
  const auto x = torch::randint(256, {2, 10}, torch::kInt64);
  auto changed = x.clone();
  changed.slice(1, 6).fill_(3);
  const auto before = model->forward(x), after = model->forward(changed);
  EXPECT_TRUE(torch::allclose(before.slice(1, 0, 6), after.slice(1, 0, 6), 0, 1e-6));
  EXPECT_FALSE(torch::allclose(before.slice(1, 6), after.slice(1, 6), 0, 1e-6));
  const auto loss = model->loss(before, x);
  EXPECT_NEAR(loss.item<double>(), std::log(256.0), 0.05);
  loss.backward();
  for (const auto& parameter : model->named_parameters())
    EXPECT_TRUE(parameter.value().grad().defined()) << parameter.key();
  const auto score = model->score(before, x);
  EXPECT_EQ(score.count, 20);
  EXPECT_NEAR(score.loss_sum / 20, loss.item<double>(), 1e-5);
  EXPECT_EQ(score.correct, before.argmax(2).eq(x).sum().item<std::int64_t>());
}

TEST(Gpt, UsesDropoutOnlyInTraining) {
  auto options = small_gpt();
  options.dropout = 0.5;
  const auto model = make_model(options, text_of(10));
  const auto x = torch::randint(256, {2, 10}, torch::kInt64);
  EXPECT_FALSE(torch::equal(model->forward(x), model->forward(x)));
  model->eval();
  EXPECT_TRUE(torch::equal(model->forward(x), model->forward(x)));
}

void train(Model& model, const Dataset& data, std::int64_t batch, double lr, int epochs) {
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(lr));
  model.train();
  for (int epoch = 0; epoch < epochs; ++epoch) {
    DistributedSampler sampler(data.size(), 0, 1);
    sampler.set_epoch(epoch);
    const auto indices = sampler.indices();
    for (std::int64_t i = 0; i + batch <= data.size(); i += batch) {
      const auto part =
          data.get(std::span(indices).subspan(static_cast<std::size_t>(i), static_cast<std::size_t>(batch)));
      optimizer.zero_grad();
      model.loss(model.forward(part.x), part.y).backward();
      optimizer.step();
    }
  }
  model.eval();
}

Score score_all(Model& model, const Dataset& data) {
  torch::NoGradGuard no_grad;
  std::vector<std::int64_t> indices(static_cast<std::size_t>(data.size()));
  std::iota(indices.begin(), indices.end(), 0);
  const auto batch = data.get(indices);
  return model.score(model.forward(batch.x), batch.y);
}

TEST(Models, LearnSyntheticData) {
  at::set_num_threads(1);
  torch::manual_seed(1);
  const auto samples = open_data({.path = "synthetic", .synthetic_samples = 1000, .synthetic_input = {6, 6}});
  const auto mlp = make_model({.name = "mlp", .layers = 2, .width = 64}, samples.shape);
  train(*mlp, *samples.train, 32, 0.005, 5);
  const auto score = score_all(*mlp, *samples.held_out);
  EXPECT_GT(static_cast<double>(score.correct), 0.9 * static_cast<double>(score.count));

  const auto text = open_data({.path = "synthetic", .context = 32, .as_text = true});
  const auto gpt =
      make_model({.name = "gpt", .layers = 1, .width = 32, .heads = 2, .context = 32}, text.shape);
  train(*gpt, *text.train, 16, 0.005, 3);
  const auto bytes = score_all(*gpt, *text.held_out);
  EXPECT_LT(bytes.loss_sum / static_cast<double>(bytes.count),
            1.35);  // a perfect model reaches 1.06, chance is 5.55

  // The generated text uses bytes of the training text.
  const auto written = generate(*gpt, "a", 200, 0.5, at::detail::createCPUGenerator(5));
  EXPECT_EQ(written.size(), 200U);
  EXPECT_EQ(written.find_first_not_of("abcdefghijklmnopqrstuvwxyz .,;'\n"), std::string::npos);
}

TEST(Models, MnistNetLearnsRealDigitsInOneEpoch) {
  REAL_DATA_OR_SKIP(folder, "mnist");
  at::set_num_threads(1);
  torch::manual_seed(1);
  const auto data = open_data({.path = folder.string()});
  const auto model = make_model({.name = "mnist"}, data.shape);
  train(*model, *data.train, 64, 0.002, 1);
  torch::NoGradGuard no_grad;
  std::vector<std::int64_t> indices(2000);
  std::iota(indices.begin(), indices.end(), 0);
  const auto batch = data.held_out->get(indices);
  const auto score = model->score(model->forward(batch.x), batch.y);
  EXPECT_EQ(score.count, 2000);
  EXPECT_GT(score.correct, 1700);
}

TEST(Generate, IsAFunctionOfModelPromptAndGenerator) {
  const auto model = make_model(small_gpt(), text_of(10));
  const auto write = [&](const std::string& prompt, double temperature, std::uint64_t seed) {
    return generate(*model, prompt, 30, temperature, at::detail::createCPUGenerator(seed));
  };
  EXPECT_EQ(write("The ", 1, 7), write("The ", 1, 7));
  EXPECT_NE(write("The ", 1, 7), write("The ", 1, 8));
  EXPECT_EQ(write("The ", 0, 7), write("The ", 0, 8));
  // Only the last `context` bytes have an effect; bytes above 127 are unchanged.
  EXPECT_EQ(write("something else \xff 123456789", 1, 7), write(" \xff 123456789", 1, 7));
  EXPECT_EQ(write("", 1, 7), write("\n", 1, 7));
  EXPECT_EQ(generate(*model, "x", 0, 1, at::detail::createCPUGenerator(0)), "");
  EXPECT_TRUE(model->is_training());  // as before
}

TEST(Generate, TakesTheLikeliestAtTemperatureZero) {
  const auto model = make_model(small_gpt(), text_of(10));
  const auto written = generate(*model, "ab", 1, 0, at::detail::createCPUGenerator(0));
  const auto logits = model->forward(torch::tensor({{97, 98}}, torch::kInt64))[0][1];
  EXPECT_EQ(static_cast<unsigned char>(written[0]), logits.argmax().item<std::int64_t>());
}

TEST(Generate, RefusesOtherModelsAndNumbers) {
  const auto gpt = make_model(small_gpt(), text_of(10));
  const auto mlp = make_model({.name = "mlp"}, digits);
  const auto generator = at::detail::createCPUGenerator(0);
  EXPECT_THROW(generate(*mlp, "a", 1, 1, generator), UserError);
  EXPECT_THROW(generate(*gpt, "a", -1, 1, generator), UserError);
  EXPECT_THROW(generate(*gpt, "a", 1, -1, generator), UserError);
  EXPECT_THROW(generate(*gpt, "a", 1, NAN, generator), UserError);
}

TEST(MakeModel, NamesTheOptionThatDoesNotFit) {
  const auto refuse = [](const ModelOptions& options, const DataShape& data) {
    return message_of<UserError>([&] { make_model(options, data); });
  };
  EXPECT_THAT(refuse({.name = "gpt2"}, digits),
              AllOf(HasSubstr("--model gpt2"), HasSubstr("did you mean gpt?")));
  EXPECT_THAT(refuse({.name = "mnist"}, text_of(64)),
              AllOf(HasSubstr("--model mnist"), HasSubstr("use --model gpt")));
  EXPECT_THAT(refuse({.name = "mlp"}, text_of(64)), HasSubstr("use --model gpt"));
  EXPECT_THAT(refuse({.name = "gpt"}, digits), HasSubstr("use --model mlp"));
  EXPECT_THAT(refuse({.name = "mnist"}, {.input = {1, 32, 32}, .classes = 10}),
              AllOf(HasSubstr("32"), HasSubstr("mlp")));
  EXPECT_THAT(refuse({.name = "mnist"}, {.input = {1, 28, 28}, .classes = 11}), HasSubstr("11"));
  EXPECT_THAT(refuse({.name = "mlp", .layers = 0}, digits), HasSubstr("--layers is 0"));
  EXPECT_THAT(refuse({.name = "mlp", .width = -3}, digits), HasSubstr("--width is -3"));
  EXPECT_THAT(refuse({.name = "mlp"}, {.input = {4}, .classes = 1}), HasSubstr("1 class"));
  EXPECT_THAT(refuse({.width = 130, .heads = 4}, text_of(64)),
              AllOf(HasSubstr("--heads 4"), HasSubstr("--width 130")));
  EXPECT_THAT(refuse({.heads = 0}, text_of(64)), HasSubstr("--heads is 0"));
  EXPECT_THAT(refuse({.heads = 256}, text_of(64)), HasSubstr("--heads is 256"));
  EXPECT_THAT(refuse({.layers = 1 << 20}, text_of(64)), HasSubstr("--layers"));
  EXPECT_THAT(refuse({.width = std::int64_t{1} << 40}, text_of(64)), HasSubstr("--width"));
  EXPECT_THAT(refuse({.context = 0}, text_of(0)), HasSubstr("--context is 0"));
  EXPECT_THAT(refuse({.context = 32}, text_of(64)), HasSubstr("--context 32"));
  EXPECT_THAT(refuse({.dropout = 1}, text_of(64)), HasSubstr("--dropout is 1"));
  EXPECT_THAT(refuse({.dropout = NAN}, text_of(64)), HasSubstr("--dropout"));
}

}  // namespace
}  // namespace farandole

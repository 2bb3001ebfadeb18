#include "farandole/train/run/flop_counter.h"

#include <gtest/gtest.h>
#include <thread>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/torch.h>

#include "farandole/train/precision.h"
#include "farandole/train/run/device_peak.h"
#include "farandole/trainer/models/model.h"

namespace farandole {
namespace {

using torch::Tensor;

double flops_of(const std::function<void()>& work) {
  const FlopCounter counter;
  work();
  return counter.flops();
}

// nanoGPT's estimate_mfu: 6N + 12·L·H·Q·T for each token. Its N leaves out the embedding of the positions,
// and its head has the matrix of the embedding of the tokens. That of our gpt has its own, so the embedding
// is left out.
struct GptFlops {
  double of_step, of_formula, of_matrices;
};
GptFlops flops_of_gpt(std::int64_t layers, std::int64_t width, std::int64_t heads, std::int64_t context) {
  torch::manual_seed(1);
  const auto model =
      make_model({.name = "gpt", .layers = layers, .width = width, .heads = heads, .context = context},
                 {{context}, 256, true});
  const std::int64_t batch = 2;
  const auto x = torch::randint(256, {batch, context}, torch::kInt64);
  GptFlops result{};
  result.of_step = flops_of([&] { model->loss(model->forward(x), x).backward(); });
  double parameters = 0, matrices = 0;
  for (const auto& item : model->named_parameters()) {
    if (item.key().starts_with("wte") || item.key().starts_with("wpe")) continue;
    parameters += static_cast<double>(item.value().numel());
    if (item.value().dim() == 2) matrices += static_cast<double>(item.value().numel());
  }
  const auto tokens = static_cast<double>(batch * context);
  const auto attention = 12 * static_cast<double>(layers * width * context) * tokens;
  result.of_formula = 6 * parameters * tokens + attention;
  result.of_matrices = 6 * matrices * tokens + attention;
  return result;
}

// The formula also counts biases and the weights of norms, with which nothing is multiplied as a matrix.
TEST(FlopCounter, AgreesWithTheFormulaForAGpt) {
  for (const auto& [layers, width, heads, context] :
       {std::array<std::int64_t, 4>{2, 128, 4, 64}, {1, 768, 12, 128}, {3, 256, 8, 96}}) {
    SCOPED_TRACE(width);
    const auto flops = flops_of_gpt(layers, width, heads, context);
    EXPECT_EQ(flops.of_step, flops.of_matrices);
    EXPECT_LT(std::abs(flops.of_step / flops.of_formula - 1), 0.01);
  }
}

TEST(FlopCounter, CountsProductsOfAllKinds) {
  const auto a = torch::ones({3, 4}), b = torch::ones({4, 5}), sum = torch::zeros({3, 5});
  const auto batch_a = torch::ones({2, 3, 4}), batch_b = torch::ones({2, 4, 5});
  EXPECT_EQ(flops_of([&] { a.mm(b); }), 2 * 3 * 4 * 5);
  EXPECT_EQ(flops_of([&] { torch::linear(batch_a, b.t(), torch::ones({5})); }), 2 * 6 * 4 * 5);
  EXPECT_EQ(flops_of([&] { torch::matmul(batch_a, batch_b); }), 2 * 2 * 3 * 4 * 5);
  EXPECT_EQ(flops_of([&] { sum.clone().addmm_(a, b); }), 2 * 3 * 4 * 5);
  auto out = torch::empty({3, 5});
  EXPECT_EQ(flops_of([&] { at::mm_out(out, a, b); }), 2 * 3 * 4 * 5);
  EXPECT_EQ(flops_of([&] { a.mv(torch::ones({4})); }), 2 * 3 * 4);
  EXPECT_EQ(flops_of([&] { torch::einsum("bij,bjk->bik", {batch_a, batch_b}); }), 2 * 2 * 3 * 4 * 5);
  EXPECT_EQ(flops_of([&] { sum.addbmm(batch_a, batch_b); }), 2 * 2 * 3 * 4 * 5);
  EXPECT_EQ(flops_of([&] { a + a; }), 0);
}

// Backward has the gradient of the weight and, if it is asked for, that of the input.
TEST(FlopCounter, CountsConvolutions) {
  using namespace torch::nn;
  const Conv2d plain(Conv2dOptions(3, 8, 5).stride(2).padding(1));
  const auto of = [](auto layer, Tensor x, bool of_input) {
    return flops_of([&] { layer->forward(x.requires_grad_(of_input)).sum().backward(); });
  };
  const double places = 2 * 7 * 7;  // of 16 × 16 with padding 1 and stride 2
  EXPECT_EQ(of(plain, torch::ones({2, 3, 16, 16}), false), 2 * 2 * places * 8 * 3 * 25);
  EXPECT_EQ(of(plain, torch::ones({2, 3, 16, 16}), true), 3 * 2 * places * 8 * 3 * 25);
  const Conv1d grouped(Conv1dOptions(4, 8, 3).groups(2).dilation(2));
  EXPECT_EQ(of(grouped, torch::ones({2, 4, 10}), true), 3 * 2 * (2 * 6) * 8 * 2 * 3);
  const ConvTranspose2d transposed(ConvTranspose2dOptions(3, 8, 4).stride(2));
  EXPECT_EQ(of(transposed, torch::ones({2, 3, 6, 6}), true), 3 * 2 * (2 * 36) * 8 * 3 * 16);
}

TEST(FlopCounter, CountsAttentionOfEachKind) {
  const auto parts =
      torch::randn({3, 2, 4, 16, 8}).requires_grad_();  // 2 samples, 4 heads, 16 places of 8 numbers
  const double forward = 2 * 2 * 4 * 16 * 16 * (8 + 8) / 1.0;
  for (const double dropout : {0.0, 0.1}) {  // With dropout, LibTorch multiplies matrices on CPUs.
    EXPECT_EQ(
        flops_of([&] {
          at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, dropout, true).sum().backward();
        }),
        3 * forward)
        << dropout;
  }
}

TEST(FlopCounter, CountsRecurrentLayers) {
  torch::nn::LSTM layer(torch::nn::LSTMOptions(6, 5).num_layers(2));
  const auto x = torch::randn({7, 3, 6}).requires_grad_();  // 7 places of 3 samples
  const double matrices = 4 * 5 * (6 + 5) + 4 * 5 * (5 + 5);
  EXPECT_EQ(flops_of([&] { std::get<0>(layer->forward(x)).sum().backward(); }), 3 * 2 * 7 * 3 * matrices);
}

// Runs its layer once more in backward, as programs do that save memory.
struct Again : torch::autograd::Function<Again> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight) {
    context->save_for_backward({x, weight});
    return x.mm(weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::AutoGradMode with_graph(true);
    auto x = context->get_saved_variables()[0].detach().requires_grad_();
    auto weight = context->get_saved_variables()[1].detach().requires_grad_();
    const auto found = torch::autograd::grad({x.mm(weight)}, {x, weight}, {gradients[0]});
    return {found[0], found[1]};
  }
};

TEST(FlopCounter, LeavesOutWhatABackwardPassRepeats) {
  const auto x = torch::ones({3, 4}).requires_grad_(), weight = torch::ones({4, 5}).requires_grad_();
  EXPECT_EQ(flops_of([&] { Again::apply(x, weight).sum().backward(); }), 3 * 2 * 3 * 4 * 5);
  EXPECT_EQ(flops_of([&] { x.mm(weight).sum().backward(); }), 3 * 2 * 3 * 4 * 5);
  // A gradient that is differentiated again is none of these.
  EXPECT_EQ(flops_of([&] { torch::autograd::grad({x.mm(weight).pow(2).sum()}, {x}, {}, true, true); }),
            2 * 2 * 3 * 4 * 5);
}

TEST(FlopCounter, CountsOnlyItsThreadAndTime) {
  const auto a = torch::ones({3, 4});
  a.mm(a.t());
  FlopCounter counter;
  std::thread([&] { a.mm(a.t()); }).join();
  EXPECT_EQ(counter.flops(), 0);
  {
    const FlopCounter second;  // Two at once would each see a part.
    a.mm(a.t());
    EXPECT_EQ(second.flops(), 0);
  }
  EXPECT_EQ(counter.flops(), 2 * 3 * 4 * 3);
  EXPECT_EQ(counter.type(), torch::kFloat);
}

TEST(FlopCounter, KnowsThePrecisionOfMostOperations) {
  const auto a = torch::ones({8, 8}), b = torch::ones({2, 2});
  const FlopCounter counter;
  {
    const Autocast autocast(Precision::bfloat16, torch::kCPU);
    a.mm(a);
  }
  b.mm(b);
  EXPECT_EQ(counter.type(), torch::kBFloat16);
  EXPECT_EQ(counter.flops(), 2 * 8 * 8 * 8 + 2 * 2 * 2 * 2);
}

TEST(DevicePeak, IsThatOfThePrecision) {
  EXPECT_EQ(device_peak_tflops("NVIDIA H100 80GB HBM3", torch::kBFloat16, false), 989.4);
  EXPECT_EQ(device_peak_tflops("NVIDIA H100 80GB HBM3", torch::kFloat, true), 494.7);
  EXPECT_EQ(device_peak_tflops("NVIDIA H100 80GB HBM3", torch::kFloat, false), 66.9);
  EXPECT_EQ(device_peak_tflops("NVIDIA H100 PCIe", torch::kHalf, true), 756);
  EXPECT_EQ(device_peak_tflops("A100-SXM4-40GB", torch::kBFloat16, true), 312);  // as older drivers say
  EXPECT_FALSE(device_peak_tflops("NVIDIA A100-SXM4-40GB MIG 1g.5gb", torch::kBFloat16, true));
  EXPECT_FALSE(device_peak_tflops("NVIDIA H100 80GB HBM3", torch::kDouble, false));
  EXPECT_FALSE(device_peak_tflops("Test double", torch::kFloat, false));
}

}  // namespace
}  // namespace farandole

#include <gmock/gmock.h>
#include <torch/utils.h>

#include "estimator/fixtures.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/estimator/model_with_losses.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The losses that LibTorch computes for each row, as means over the row's other values.
TEST(LossFunction, HasAValueForEachRow) {
  const auto output = torch::rand({3, 4}), label = torch::rand({3, 4});
  const auto difference = output - label;
  EXPECT_TRUE(torch::allclose(LossFunction("mse").of_rows(output, label), difference.square().mean(1)));
  EXPECT_TRUE(torch::allclose(LossFunction("l1").of_rows(output, label), difference.abs().mean(1)));
  EXPECT_TRUE(torch::allclose(LossFunction("huber").of_rows(output, label), difference.square().mean(1) / 2));
  EXPECT_TRUE(
      torch::allclose(LossFunction("smooth_l1").of_rows(output, label), difference.square().mean(1) / 2));
  const auto entropy = -(label * output.log() + (1 - label) * (1 - output).log());
  EXPECT_TRUE(torch::allclose(LossFunction("bce").of_rows(output, label), entropy.mean(1)));
  EXPECT_TRUE(torch::allclose(LossFunction("bce_with_logits").of_rows(output.logit(), label), entropy.mean(1),
                              1e-4, 1e-5));
  const auto classes = torch::tensor({3, 0, 1}, torch::kInt64);
  const auto chosen = output.gather(1, classes.unsqueeze(1)).squeeze(1);
  EXPECT_TRUE(torch::allclose(LossFunction("nll").of_rows(output, classes), -chosen));
  EXPECT_TRUE(
      torch::allclose(LossFunction("cross_entropy").of_rows(output, classes), output.logsumexp(1) - chosen));
}

TEST(LossFunction, HasTheMeanOfPyTorchBitForBit) {
  for (int seed = 0; seed < 20; ++seed) {
    torch::manual_seed(seed);
    const auto output = torch::randn({50, 3}), values = torch::rand({50, 3});
    const auto classes = torch::randint(3, {50}, torch::kInt64);
    const auto mean = [](const char* name, const torch::Tensor& of, const torch::Tensor& label) {
      return LossFunction(name).mean(of, label);
    };
    EXPECT_TRUE(
        torch::equal(mean("cross_entropy", output, classes), torch::cross_entropy_loss(output, classes)));
    EXPECT_TRUE(torch::equal(mean("nll", output, classes), torch::nll_loss(output, classes)));
    EXPECT_TRUE(torch::equal(mean("mse", output, values), torch::mse_loss(output, values)));
    EXPECT_TRUE(torch::equal(mean("bce_with_logits", output, values),
                             torch::binary_cross_entropy_with_logits(output, values)));
  }
}

TEST(LossFunction, TakesLabelsAsItNeedsThem) {
  EXPECT_EQ(LossFunction("nll").labels(torch::ones({3}), torch::zeros({3, 2})).scalar_type(), torch::kInt64);
  const auto numbers = LossFunction("mse").labels(torch::ones({3}, torch::kInt64), torch::zeros({3, 1}));
  EXPECT_EQ(numbers.scalar_type(), torch::kFloat32);
  EXPECT_EQ(numbers.sizes(), (std::vector<std::int64_t>{3, 1}));
}

TEST(LossFunction, RefusesShapesThatDoNotFit) {
  const auto outputs = torch::zeros({3, 2});
  EXPECT_THAT(message_of<UserError>([&] { LossFunction("mse").of_rows(outputs, torch::zeros({3})); }),
              AllOf(HasSubstr("outputs have shape [3, 2], and the labels have shape [3]"),
                    HasSubstr("--loss mse needs equal shapes; choose another label column, loss or model")));
  EXPECT_THAT(
      message_of<UserError>([&] { LossFunction("nll").of_rows(torch::zeros({3}), torch::zeros({3})); }),
      HasSubstr("--loss nll needs outputs [rows, classes, ...] and labels [rows, ...]"));
}

TEST(LossFunction, RefusesNamesAndFilesThatAreNoLoss) {
  EXPECT_THAT(message_of<UserError>([] { LossFunction("mean"); }),
              AllOf(HasSubstr("there is no loss mean; the losses are nll, cross_entropy, mse"),
                    HasSubstr("files of TorchScript or torch.export")));
  EXPECT_THAT(message_of<UserError>([] { LossFunction("mean", "metric"); }),
              HasSubstr("there is no metric mean"));
  EXPECT_THAT(
      message_of<CorruptInput>([] { LossFunction("/proc/version"); }),
      AllOf(HasSubstr("/proc/version cannot be loaded as TorchScript"), HasSubstr("torch.jit.script")));
}

TEST(LossFunction, IsAlsoAScript) {
  const TemporaryFolder folder;
  const auto saved = [&](const std::string& body) {
    const auto file = (folder / "loss.pt").string();
    script_of("def forward(self, output, label):\n  return " + body + "\n").save(file);
    return LossFunction(file);
  };
  const auto output = torch::rand({3, 4}), label = torch::rand({3, 4});
  EXPECT_TRUE(torch::allclose(saved("(output - label) ** 4").of_rows(output, label),
                              (output - label).pow(4).mean(1)));
  EXPECT_EQ(saved("(output - label).sum()").of_rows(output, label).dim(), 0);
  EXPECT_FALSE(saved("output").classifies());
  EXPECT_THAT(message_of<UserError>([&] {
                saved("output + label").of_rows(output, torch::rand({3, 3}));
              }),
              AllOf(HasSubstr("loss.pt failed on outputs of shape [3, 4] and labels of shape [3, 3]: "),
                    HasSubstr("must match")));
  EXPECT_THAT(message_of<UserError>([&] { saved("(output, label)").of_rows(output, label); }),
              HasSubstr("loss.pt returns a Tuple, not a tensor"));
}

}  // namespace
}  // namespace farandole

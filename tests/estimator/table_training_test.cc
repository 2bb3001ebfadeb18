// What a fit refuses before it trains: models, tables, losses and options that do not fit together.
#include "farandole/estimator/table_training.h"

#include <cmath>
#include <gmock/gmock.h>
#include <torch/utils.h>

#include "estimator/fixtures.h"

#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

// 200 rows of 12 and of 13 numbers, with three classes. One class is wrong, and one number is a NaN.
class RefusedFit : public testing::Test {
 protected:
  RefusedFit() {
    constexpr std::size_t rows = 200;
    std::vector<float> x(rows * 12, 0.5F), gap = x;
    gap[123 * 12 + 4] = std::nanf("");
    std::vector<std::int64_t> digit(rows);
    for (std::size_t row = 0; row < rows; ++row) digit[row] = static_cast<std::int64_t>(row % 3);
    auto wrong = digit;
    wrong[15] = 7;
    table_.add({"x", DType::float32, {12}}, bytes_of_numbers(x));
    table_.add({"wide", DType::float32, {13}}, bytes_of_numbers(std::vector<float>(rows * 13)));
    table_.add({"gap", DType::float32, {12}}, bytes_of_numbers(gap));
    table_.add({"digit", DType::int64, {}}, bytes_of_numbers(digit));
    table_.add({"wrong", DType::int64, {}}, bytes_of_numbers(wrong));
    table_.add_other("name");
    torch::jit::Module net("Net");
    net.register_parameter("weight", torch::zeros({3, 12}).requires_grad_(), false);
    net.define("def forward(self, x):\n  return torch.log_softmax(torch.linear(x, self.weight), 1)\n");
    net.save(file("net.pt"));
    torch::jit::Module pair("Net");
    pair.register_parameter("weight", torch::zeros({3, 12}).requires_grad_(), false);
    pair.define("def forward(self, x):\n  return torch.linear(x, self.weight), x\n");
    pair.save(file("pair.pt"));
    script_of("def forward(self, x):\n  return torch.flatten(x, 1)\n").save(file("empty.pt"));
    script_of("def forward(self, output, label):\n  return torch.flatten(output) - label\n")
        .save(file("bias.pt"));
    write_file_atomically(file("damaged.pt"), "no archive");
    options_.model = file("net.pt");
    options_.features = {"x"};
    options_.labels = {"digit"};
    options_.losses = {"nll"};
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  template <class Wrong = UserError>
  std::string refusal(const std::function<void(EstimatorOptions&)>& change, int ranks = 1) {
    auto options = options_;
    change(options);
    return message_of<Wrong>([&] {
      options.check();
      ModelWithLosses model(load_model(options.model, {}, torch::kCPU), table_, options);
      check_fit(model, table_, options, ranks);
    });
  }

  const TemporaryFolder folder_;
  MemoryTable table_{"train.h5", 200};
  EstimatorOptions options_;
};

TEST_F(RefusedFit, NamesWhatDoesNotFit) {
  struct Case {
    std::function<void(EstimatorOptions&)> change;
    const char* message;
  };
  const auto metric = [this](const std::string& name, const std::string& of) {
    return [text = name + "=" + (of.empty() ? "none.pt" : file(of))](EstimatorOptions& o) {
      o.metrics = {text};
    };
  };
  const Case cases[] = {
      {[](auto& o) { o.features = {"pixels"}; },
       "no column pixels; its columns are digit, gap, wide, wrong, x"},
      {[](auto& o) { o.labels = {"digits"}; }, "no column digits, did you mean digit"},
      {[](auto& o) { o.features = {"name"}; }, "column name of train.h5 does not hold numbers"},
      {[](auto& o) { o.features = {"wide"}; }, "does not accept features of shape [32, 13]: "},
      {[](auto& o) {
         o.input_shapes = {{3, 5}};
       },
       "input-shapes [3,5] does not fit column x"},
      {[](auto& o) { o.model = "nothing.pt"; }, "there is no model nothing.pt"},
      {[this](auto& o) { o.model = file("empty.pt"); }, "empty.pt has no parameters"},
      {[this](auto& o) { o.model = file("pair.pt"); },
       "pair.pt returns 2 tensors for 1 label; name a column"},
      {[](auto& o) {
         o.labels = {"digit", "wrong"};
       },
       "net.pt returns 1 tensor for 2 labels"},
      {[](auto& o) {
         o.losses = {"nll", "mse"};
       },
       "loss has 2 values for 1 label; give one"},
      {[](auto& o) { o.losses = {"nil"}; }, "there is no loss nil; the losses are nll,"},
      {[](auto& o) { o.losses = {"mse"}; },
       "outputs have shape [32, 3], and the labels have shape [32]; --loss mse needs equal shapes"},
      {[](auto& o) { o.metrics = {"acuracy"}; }, "there is no metric acuracy; the metrics are accuracy,"},
      {[](auto& o) { o.metrics = {"mae"}; }, "the metric mae needs a label of numbers, not of classes"},
      {metric("mine", ""), "there is no metric none.pt"},
      {metric("mine", "bias.pt"),
       "bias.pt failed on outputs of shape [32, 3] and labels of shape [32]: The size of tensor"},
      {[](auto& o) { o.optimizer = "sdg"; }, "optimizer cannot be 'sdg'; it is one of sgd, adam"},
      {[](auto& o) {
         o.optimizer = "adam";
         o.momentum = 0.9;
       },
       "momentum is an option of sgd and rmsprop"},
      {[](auto& o) {
         o.optimizer = "lbfgs";
         o.weight_decay = 0.1;
       },
       "weight-decay is no option of lbfgs"},
      {[](auto& o) {
         o.schedule = "one_cycle";
         o.warmup_steps = 3;
       },
       "warmup-steps is no option of --schedule one_cycle"},
      {[](auto& o) { o.validation = 1; }, "validation must be a fraction"},
      {[](auto& o) { o.checkpoint_every = "2epochs"; }, "checkpoint-every needs steps, a time or auto"},
      {[](auto& o) { o.checkpoint_every = "soon"; }, "checkpoint-every cannot be 'soon'"},
      {[](auto& o) { o.device = "gpu"; }, "device cannot be 'gpu'; it is one of cpu, cuda, auto"},
      {[](auto& o) { o.precision = "half"; }, "precision cannot be 'half'"},
      {[](auto& o) { o.clip_norm = -1; }, "clip-norm cannot be negative"},
      {[](auto& o) { o.peak_tflops = -1; }, "peak-tflops cannot be negative"},
      {[](auto& o) { o.on_nonfinite = "ignore"; }, "on-nonfinite cannot be 'ignore'"},
  };
  for (const auto& [change, message] : cases) EXPECT_THAT(refusal(change), testing::HasSubstr(message));
  EXPECT_THAT(refusal([](auto&) {}, 201), testing::HasSubstr("has 200 rows to train on for 201 ranks"));
  ModelWithLosses model(load_model(options_.model, {}, torch::kCPU), table_, options_);
  EXPECT_NO_THROW(check_fit(model, table_, options_, 200));
}

TEST_F(RefusedFit, ClassesOfTextsNeedALossOfClassesAndAnOutputEach) {
  const auto refused = [&](const std::string& loss, std::vector<std::string> names) {
    options_.losses = {loss};
    return message_of<UserError>([&] {
      ModelWithLosses model(load_model(options_.model, {}, torch::kCPU), table_, options_, torch::kCPU,
                            {{"digit", std::move(names)}});
      check_fit(model, table_, options_, 1);
    });
  };
  EXPECT_THAT(
      refused("mse", {"a", "b", "c"}),
      testing::HasSubstr("column digit of train.h5 holds texts, which are classes, and --loss mse compares"));
  EXPECT_THAT(refused("nll", {"a", "b", "c", "d"}),
              testing::AllOf(testing::HasSubstr("column digit has 4 classes (a, b, c, d), and "),
                             testing::HasSubstr("net.pt returns 3 outputs for each row")));
  ModelWithLosses model(load_model(options_.model, {}, torch::kCPU), table_, options_, torch::kCPU,
                        {{"digit", {"a", "b", "c"}}});
  EXPECT_NO_THROW(check_fit(model, table_, options_, 1));
}

TEST_F(RefusedFit, NamesWhatIsDamaged) {
  const auto damage = [&](const auto& change) { return refusal<CorruptInput>(change); };
  EXPECT_THAT(damage([](auto& o) { o.labels = {"wrong"}; }),
              testing::HasSubstr("column wrong has the label 7 in row 15; the model has 3 classes"));
  EXPECT_THAT(damage([this](auto& o) { o.model = file("damaged.pt"); }),
              testing::HasSubstr("damaged.pt cannot be loaded as TorchScript"));
  EXPECT_THAT(damage([this](auto& o) { o.losses = {file("damaged.pt")}; }),
              testing::HasSubstr("damaged.pt cannot be loaded"));
}

}  // namespace
}  // namespace farandole

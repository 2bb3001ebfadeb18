// What a fit refuses before it trains: models, tables, losses and options that do not fit together.
#include "farandole/estimator/table_training.h"

#include <cmath>
#include <gmock/gmock.h>
#include <torch/utils.h>

#include "estimator/fixtures.h"

#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/estimator/fit.h"

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
  };
  for (const auto& [change, message] : cases) EXPECT_THAT(refusal(change), testing::HasSubstr(message));
  EXPECT_THAT(refusal([](auto&) {}, 201), testing::HasSubstr("has 200 rows to train on for 201 ranks"));
  ModelWithLosses model(load_model(options_.model, {}, torch::kCPU), table_, options_);
  EXPECT_NO_THROW(check_fit(model, table_, options_, 200));
}

TEST_F(RefusedFit, TheCommandLineNamesTheOption) {
  const auto parse = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"fit", "--model=" + options_.model, "--features=x", "--label=digit"});
    std::vector<const char*> argv;
    for (const auto& word : words) argv.push_back(word.c_str());
    return parse_fit(static_cast<int>(argv.size()), argv.data());
  };
  // clang-format off
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--optimizer=sdg"}, "--optimizer cannot be 'sdg'; it is one of sgd, adam, adamw, rmsprop, adagrad, lbfgs; did you mean sgd?"},
      {{"--schedule=steps"}, "--schedule cannot be 'steps'; it is one of constant, step, cosine, polynomial, one_cycle"},
      {{"--nan=drop"}, "--nan cannot be 'drop'; it is one of error, skip, keep"},
      {{"--lr=0"}, "--lr must be positive"},
      {{"--clip-norm=-1"}, "--clip-norm is -1; it must be finite and not negative"},
      {{"--train-steps=-1"}, "--train-steps is -1; it must be between 0"},
      {{"--optimizer=lbfgs", "--weight-decay=0.1"}, "--weight-decay is no option of lbfgs"},
      {{"--optimizer=lbfgs", "--precision=float16"}, "--precision float16 is no option of lbfgs; use bfloat16"},
      {{"--schedule=one_cycle", "--warmup-steps=3"}, "--warmup-steps is no option of --schedule one_cycle"},
      {{"--validation=1"}, "--validation must be a fraction of the rows"},
      {{"--validation=0.5", "--validation-column=digit"}, "give --validation or --validation-column, not both"},
      {{"--checkpoint-every=2epochs"}, "--checkpoint-every needs steps, a time or auto"},
      {{"--checkpoint-steps=20"}, "--checkpoint-steps does not exist any more; use --checkpoint-every"},
      {{"--labels=digit"}, "--labels does not exist any more; use --label"},
      {{"--features", ""}, "no features given; name columns with --features"},
      {{"--label", ""}, "no label given; name a column with --label"},
      {{"--loss-weights=1,x"}, "--loss-weights 1,x: 'x' is not a weight; write for example 1,0.5"},
      {{"--loss-weights=1,2"}, "--loss-weights has 2 values for 1 label; give one for each"},
      {{"--input-shapes=3,x"}, "--input-shapes 3,x: 'x' is not a size; write for example 1,28,28"},
      {{"--input-shapes=3;4"}, "--input-shapes has 2 shapes for 1 features"},
      {{"--run=../other"}, "--run must be a name without '/'"},
      {{"--run-dir=runs/a", "--run=b"}, "--run-dir is instead of --store and --run"},
  };
  // clang-format on
  for (const auto& [words, line] : cases)
    EXPECT_THAT(message_of<UserError>([&, &words = words] { parse(words); }), testing::HasSubstr(line));
  const auto fit =
      parse({"--features=[a,b],c:int64", "--label=d,e", "--input-shapes=1,2;1", "--loss-weights=1,0.5",
             "--metrics=mae,rmse", "--run-dir=runs/mine/", "--prometheus=a b"});
  ASSERT_TRUE(fit);
  EXPECT_THAT(fit->options.features, testing::ElementsAre("[a,b]", "c:int64"));
  EXPECT_THAT(fit->options.labels, testing::ElementsAre("d", "e"));
  EXPECT_THAT(fit->options.input_shapes,
              testing::ElementsAre(testing::ElementsAre(1, 2), testing::ElementsAre(1)));
  EXPECT_THAT(fit->options.loss_weights, testing::ElementsAre(1, 0.5));
  EXPECT_THAT(fit->options.metrics, testing::ElementsAre("mae", "rmse"));
  EXPECT_EQ(fit->options.store / fit->options.run, "runs/mine");
  EXPECT_EQ(fit->options.prometheus, "a b");
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

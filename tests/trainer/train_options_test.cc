#include "farandole/trainer/train_options.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"

namespace farandole {
namespace {

// The line with which these options are refused; the options before them are right.
std::string refusal(std::vector<std::string> words) {
  words.insert(words.begin(), {"train", "--data=synthetic", "--run-dir=/proc/nowhere", "--model=mlp"});
  std::vector<const char*> argv;
  for (const auto& word : words) argv.push_back(word.c_str());
  TrainOptions options;
  try {
    train_option_parser(options, {}).parse(static_cast<int>(argv.size()), argv.data());
    options.check();
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TrainOptions, RefusesNumbersThatCannotBe) {
  for (const std::string name :
       {"lr", "momentum", "weight-decay", "clip-norm", "bucket-mb", "validation", "peak-tflops"})
    for (const auto* value : {"inf", "-inf", "nan", "-1", "1e400"})
      EXPECT_THAT(refusal({"--" + name, value}), testing::HasSubstr(name)) << value;
  for (const std::string name :
       {"epochs", "steps", "batch-size", "accumulate", "warmup-steps", "checkpoint-keep",
        "checkpoint-keep-every", "check-replicas", "ranks-per-gpu", "log-steps", "sample", "recorder-mb"})
    for (const auto* value : {"9223372036854775807", "1000000001", "9223372036854775808", "-1", "nan"})
      EXPECT_THAT(refusal({"--" + name, value}), testing::HasSubstr(name)) << value;
  EXPECT_EQ(refusal({"--batch-size", "1000000000"}), "accepted");
  EXPECT_EQ(refusal({"--lr", "0"}), "accepted");
}

TEST(TrainOptions, RefusesWhatCannotBeInOneLine) {
  // clang-format off
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--data", ""}, "--data is missing; name a file or folder, or 'synthetic'"},
      {{"--run-dir", ""}, "--run-dir is missing; name the folder for the files of the run"},
      {{"--epochs", "0"}, "--epochs is 0; it must be between 1 and 1000000000"},
      {{"--lr", "inf"}, "--lr is inf; it must be finite and not negative"},
      {{"--validation", "1"}, "--validation is 1; it must lie between 0 and 1"},
      {{"--model", "mnits"}, "--model cannot be 'mnits'; it is one of mnist, mlp, gpt; did you mean mnist?"},
      {{"--optimizer", "lbfgs"}, "--optimizer cannot be 'lbfgs'; it is one of sgd, adam, adamw, rmsprop"},
      {{"--schedule", "step"}, "--schedule cannot be 'step'; it is one of constant, cosine"},
      {{"--device", "gpu"}, "--device cannot be 'gpu'; it is one of cpu, cuda, auto; did you mean cpu?"},
      {{"--transport", "tcp"}, "--transport cannot be 'tcp'; it is one of auto, hierarchical, mpi"},
      {{"--precision", "fp16"}, "--precision cannot be 'fp16'; it is one of float32, tf32, bfloat16, float16"},
      {{"--resume-optimizer", "other"}, "--resume-optimizer cannot be 'other'; it is one of same, fresh"},
      {{"--on-nonfinite", "skp"}, "--on-nonfinite cannot be 'skp'; it is one of stop, skip, rollback; did you mean skip?"},
      {{"--shard", "maybe"}, "--shard cannot be 'maybe'; use auto, on or off"},
      {{"--compression", "fp16"}, "compression 'fp16' is unknown"},
      {{"--compression", "topk:0.1"}, "compression 'topk:0.1' no longer exists; use bfloat16"},
      {{"--synchronize", "parameters:0"}, "synchronize cannot be 'parameters:0'"},
      {{"--checkpoint-every", "often"}, "checkpoint-every cannot be 'often'"},
      {{"--checkpoint-steps", "20"}, "--checkpoint-steps does not exist any more; use --checkpoint-every, for example 500steps"},
      {{"--timeline", "sometimes"}, "--timeline cannot be 'sometimes'"},
      {{"--gpu-activity", "some"}, "--gpu-activity cannot be 'some'; give sample, off, steps=A-B or all"},
      {{"--stop-before", "soon"}, "--stop-before cannot be 'soon'; give a duration such as 90s, 2min or 1h"},
      {{"--stall-seconds", "never"}, "--stall-seconds"},
      {{"--bucket-mb", "3MiB"}, "--bucket-mb cannot be '3MiB'; give a number of MiB above 0 and up to 1000000, or auto"},
      {{"--bucket-mb", "0"}, "--bucket-mb cannot be '0'"},
      {{"--sample", "9"}, "--sample needs --model gpt; no other model generates text"},
      {{"--momentum=0.9", "--optimizer=adam"}, "--momentum cannot be used with --optimizer adam; use sgd or rmsprop"},
      {{"--device=cuda", "--compression=float16"}, "work on CPUs only; use --device cpu"},
      {{"--bucket-mb=auto", "--compression=float16"}, "--bucket-mb auto cannot be used with --compression float16; give a size"},
      {{"--synchronize=parameters:2", "--bucket-mb=auto"}, "--bucket-mb auto cannot be used with --synchronize parameters:2; give a size"},
      {{"--synchronize=parameters:2", "--compression=float16"}, "--compression cannot be used with --synchronize parameters:2"},
      {{"--synchronize=parameters:2", "--precision=float16"}, "--precision float16 cannot be used with --synchronize parameters:2; use bfloat16"},
      {{"--synchronize=parameters:2", "--on-nonfinite=rollback"}, "--on-nonfinite rollback cannot be used with --synchronize parameters:2"},
      {{"--synchronize=parameters:2", "--check-replicas=5"}, "--check-replicas cannot be used with --synchronize parameters:2"},
  };
  // clang-format on
  for (const auto& [options, line] : cases)
    EXPECT_THAT(refusal(options),
                testing::AllOf(testing::HasSubstr(line), testing::Not(testing::HasSubstr("\n"))));
}

nlohmann::json config_with(const std::string& option) {
  TrainOptions options;
  const char* argv[] = {"train", "--data=synthetic", "--model=gpt", option.c_str()};
  train_option_parser(options, {}).parse(std::size(argv), argv);
  auto json = nlohmann::json::parse(options.to_json());
  auto model = json["model"];
  model["model"] = std::exchange(model["name"], "");
  json.update(model);
  return json;
}

TEST(TrainOptions, CheckpointsHaveEachOptionThatDecidesWhatIsTrained) {
  // Where and for how long a run trains, what it writes, and what it watches.
  const std::vector<std::string> others = {
      "data-scratch",    "ranks-per-gpu",    "transport",    "run-dir",
      "resume",          "resume-optimizer", "mtbf",         "checkpoint-every",
      "checkpoint-keep", "timeline",         "gpu-activity", "recorder-mb",
      "recorder-dir",    "stop-before",      "merge-limit",  "log-steps",
      "stall-seconds",   "stall-abort",      "sample",       "checkpoint-keep-every",
      "tensorboard",     "prometheus",       "peak-tflops",  "shard"};
  const std::map<std::string, std::string> keys_of_files = {{"batch-size", "batch"},
                                                            {"validation", "held-out"}};
  TrainOptions options;
  const auto parser = train_option_parser(options, {});
  const auto usual = config_with("--lr=0.01");
  for (const auto& name : parser.names()) {
    const auto older = keys_of_files.find(name);
    auto key = older == keys_of_files.end() ? name : older->second;
    std::ranges::replace(key, '-', '_');
    if (std::ranges::count(others, name) > 0) {
      EXPECT_FALSE(usual.contains(key)) << name;
      continue;
    }
    ASSERT_TRUE(usual.contains(key)) << "checkpoints lack --" << name << "; does it decide what is trained?";
    const auto& value = usual[key];
    const std::string other = value.is_string() ? "other" : value.is_boolean() ? "off" : "7";
    EXPECT_NE(config_with("--" + name + "=" + other)[key], value) << name;
  }
}

TEST(TrainOptions, SaysTheNewNamesOfOptions) {
  const std::map<std::string, std::string> names = {
      {"batch", "batch-size"}, {"held-out", "validation"}, {"labels", "label"}};
  for (const auto& [former, name] : names)
    EXPECT_EQ(refusal({"--" + former, "7"}), "--" + former + " does not exist any more; use --" + name);
}

TEST(TrainOptions, FeaturesMayHaveTheBracketsOfAFit) {
  TrainOptions options;
  const char* argv[] = {"train", "--features", "[a,b]"};
  train_option_parser(options, {}).parse(std::size(argv), argv);
  EXPECT_THAT(options.data.features, testing::ElementsAre("a", "b"));
}

TEST(TrainOptions, NamesTheOptionsThatDifferFromThoseOfACheckpoint) {
  TrainOptions old, now;
  const auto changes = [&] { return changed_options(old.to_json(), now.to_json()); };
  EXPECT_THAT(changes(), testing::IsEmpty());
  now.epochs = now.steps = 9;
  now.data.path = "elsewhere";
  now.check_replicas = 10;
  EXPECT_THAT(changes(), testing::IsEmpty());
  now.lr = 0.1;
  now.model.dropout = 0.25;
  now.schedule = "cosine";
  now.scale_lr = false;
  EXPECT_THAT(changes(), testing::UnorderedElementsAre(
                             "--dropout 0.25 instead of 0", "--lr 0.1 instead of 0.01",
                             "--schedule cosine instead of constant", "--scale-lr false instead of true"));
  // An old checkpoint has fewer options, and a number may have another type.
  EXPECT_THAT(
      changed_options(R"({"schedule": "constant", "clip_norm": 0, "seed": 2, "odd": 1})", now.to_json()),
      testing::UnorderedElementsAre("--schedule cosine instead of constant", "--seed 1 instead of 2"));
  EXPECT_THAT(changed_options("", now.to_json()), testing::IsEmpty());
  // With auto, a run has the size that it measured before.
  now = old;
  now.bucket_mb.reset();
  EXPECT_THAT(changes(), testing::IsEmpty());
  old.bucket_mb = 8;
  now.bucket_mb = 25;
  EXPECT_THAT(changes(), testing::ElementsAre("--bucket-mb 25 instead of 8"));
}

// More do not fit on two screens, and nobody reads them.
TEST(TrainOptions, HelpFitsOnTwoScreens) {
  TrainOptions options;
  const char* argv[] = {"train", "--help"};
  testing::internal::CaptureStdout();
  train_option_parser(options, "profiles").parse(std::size(argv), argv);
  const auto help = testing::internal::GetCapturedStdout();
  std::size_t shown = 0;
  for (std::size_t at = 0; (at = help.find("\n  -", at)) != std::string::npos; ++at) ++shown;
  EXPECT_GT(shown, 30);
  EXPECT_LE(shown, 40);
  EXPECT_LE(std::ranges::count(help, '\n'), 100);
}

}  // namespace
}  // namespace farandole

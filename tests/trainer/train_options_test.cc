#include "farandole/trainer/train_options.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"

namespace farandole {
namespace {

std::string refusal(const std::string& name, const std::string& value) {
  TrainOptions options;
  const auto option = "--" + name;
  const char* argv[] = {"train",   "--data", "synthetic",    "--run-dir",  "/proc/nowhere",
                        "--model", "mlp",    option.c_str(), value.c_str()};
  try {
    train_option_parser(options, {}).parse(std::size(argv), argv);
    options.check();
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TrainOptions, RefusesNumbersThatCannotBe) {
  for (const auto* name :
       {"lr", "momentum", "weight-decay", "clip-norm", "bucket-mb", "validation", "peak-tflops"})
    for (const auto* value : {"inf", "-inf", "nan", "-1", "1e400"})
      EXPECT_NE(refusal(name, value).find(name), std::string::npos) << name << " " << value;
  for (const auto* name : {"epochs", "steps", "batch-size", "accumulate", "warmup-steps", "checkpoint-keep",
                           "log-steps", "sample", "recorder-mb"})
    for (const auto* value : {"9223372036854775807", "1000000001", "9223372036854775808", "-1", "nan"})
      EXPECT_NE(refusal(name, value).find(name), std::string::npos) << name << " " << value;
  EXPECT_EQ(refusal("batch-size", "1000000000"), "accepted");
  EXPECT_EQ(refusal("lr", "0"), "accepted");
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
    EXPECT_EQ(refusal(former, "7"), "--" + former + " does not exist any more; use --" + name);
}

TEST(TrainOptions, FeaturesMayHaveTheBracketsOfAFit) {
  TrainOptions options;
  const char* argv[] = {"train", "--features", "[a,b]"};
  train_option_parser(options, {}).parse(std::size(argv), argv);
  EXPECT_THAT(options.data.features, testing::ElementsAre("a", "b"));
}

TEST(TrainOptions, HelpShowsFewEnoughToRead) {
  TrainOptions options;
  constexpr std::size_t general = 4;  // --help, --version, --profile and --set
  EXPECT_LE(train_option_parser(options, {}).visible.options().size() + general, 40u);
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

TEST(TrainOptions, ThoseOfEarlierVersionsSayWhatToWriteInstead) {
  EXPECT_EQ(refusal("checkpoint-steps", "20"),
            "--checkpoint-steps does not exist any more; use --checkpoint-every, for example 500steps");
}

}  // namespace
}  // namespace farandole

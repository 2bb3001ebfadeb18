#include "farandole/trainer/train_options.h"

#include <gtest/gtest.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

std::string refusal(const std::string& name, const std::string& value) {
  TrainOptions options;
  const auto option = "--" + name;
  const char* argv[] = {"train",   "--data", "synthetic",    "--run-dir",  "/nowhere",
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
  for (const auto* name : {"lr", "momentum", "weight-decay", "clip-norm", "bucket-mb", "held-out"})
    for (const auto* value : {"inf", "-inf", "nan", "-1", "1e400"})
      EXPECT_NE(refusal(name, value).find(name), std::string::npos) << name << " " << value;
  for (const auto* name : {"epochs", "steps", "batch", "accumulate", "warmup-steps", "checkpoint-steps",
                           "checkpoint-epochs", "checkpoint-keep", "log-steps", "sample", "recorder-mb"})
    for (const auto* value : {"9223372036854775807", "1000000001", "9223372036854775808", "-1", "nan"})
      EXPECT_NE(refusal(name, value).find(name), std::string::npos) << name << " " << value;
  EXPECT_EQ(refusal("batch", "1000000000"), "accepted");
  EXPECT_EQ(refusal("lr", "0"), "accepted");
}

}  // namespace
}  // namespace farandole

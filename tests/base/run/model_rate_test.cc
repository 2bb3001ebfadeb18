#include "farandole/base/run/model_rate.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(ModelRate, IsOfAllDevices) {
  RunFacts facts{.ranks = 4};
  EXPECT_FALSE(model_rate(facts, 0.1)) << "the operations are unknown";
  EXPECT_EQ(describe_model_flops(facts), "");
  facts.model_flops = 4e13;
  facts.model_flops_from = "given by the program";
  EXPECT_FALSE(model_rate(facts, 0)) << "the time is unknown";
  auto rate = model_rate(facts, 0.1);
  ASSERT_TRUE(rate);
  EXPECT_DOUBLE_EQ(rate->tflops, 400);
  EXPECT_FALSE(rate->mfu);
  EXPECT_EQ(rate->text(), "400 TFLOP/s");
  EXPECT_EQ(describe_model_flops(facts), "40 TFLOP a step, given by the program");
  facts.peak_tflops = 400;
  facts.peak_from = "a card, bfloat16";
  EXPECT_DOUBLE_EQ(*model_rate(facts, 0.1)->mfu, 0.25);  // Without GPUs, each rank has the peak.
  facts.gpus = {"a", "a", "b", "b"};                     // Two ranks share a GPU.
  rate = model_rate(facts, 0.1);
  EXPECT_DOUBLE_EQ(*rate->mfu, 0.5);
  EXPECT_EQ(rate->text(), "400 TFLOP/s, MFU 50.0 %");
  EXPECT_EQ(describe_model_flops(facts),
            "40 TFLOP a step, given by the program; peak 400 TFLOP/s per device (a card, bfloat16)");
  facts.peak_from = "a card\x1b[2J";  // Whoever can write run.json must not control a terminal.
  EXPECT_EQ(describe_model_flops(facts).find('\x1b'), std::string::npos);
  EXPECT_EQ(model_rate(facts, 1e3)->text(), "40 GFLOP/s, MFU 0.0 %");
}

}  // namespace
}  // namespace farandole

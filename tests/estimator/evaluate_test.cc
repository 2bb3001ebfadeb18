#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "farandole/estimator/apply.h"

namespace farandole {
namespace {

// The ranks send an evaluation to the program that has started them as JSON.
TEST(Evaluation, SurvivesJson) {
  const Evaluation sent{1000, 0.25, {{"accuracy", 0.9}, {"y__mae", 3}}, {{"y", {{5, 1}, {0, 994}}}}};
  const auto got = evaluation_from_json(evaluation_to_json(sent));
  EXPECT_EQ(got.rows, sent.rows);
  EXPECT_EQ(got.loss, sent.loss);
  EXPECT_EQ(got.metrics, sent.metrics);
  EXPECT_EQ(got.confusion, sent.confusion);
}

// A model may return NaNs, of which JSON has none.
TEST(Evaluation, OfNumbersThatAreNotFiniteSurvivesJson) {
  const double missing = std::numeric_limits<double>::quiet_NaN();
  const auto got =
      evaluation_from_json(evaluation_to_json({3, missing, {{"mae", missing}, {"rmse", 2}}, {}}));
  EXPECT_EQ(got.rows, 3);
  EXPECT_TRUE(std::isnan(got.loss));
  ASSERT_EQ(got.metrics.count("mae"), 1u);
  EXPECT_TRUE(std::isnan(got.metrics.at("mae")));
  EXPECT_EQ(got.metrics.at("rmse"), 2);
}

}  // namespace
}  // namespace farandole

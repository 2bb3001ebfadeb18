#include "farandole/estimator/store.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include <nlohmann/json.hpp>

#include "farandole/base/files/atomic_file.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

class FitStore : public testing::Test {
 protected:
  FitStore() { options_.store = folder_ / "store"; }

  static EpochResult epoch(std::int64_t number, double validation_loss) {
    EpochResult result;
    result.epoch = number;
    result.validation_loss = validation_loss;
    return result;
  }
  std::vector<std::string> ids() const {
    std::vector<std::string> ids;
    for (const auto& fit : list_fits(options_.store)) ids.push_back(fit.id);
    return ids;
  }

  TemporaryFolder folder_;
  EstimatorOptions options_;
};

TEST_F(FitStore, KeepsLossesAndMetricsThatAreNoNumbers) {
  auto fit = open_fit(options_, "table.h5");
  fit.history = {epoch(1, nan), epoch(2, 3)};
  fit.history[0].metrics = {{"correlation", nan}, {"mae", 2}};
  fit.history[0].training_metrics = {{"correlation", std::numeric_limits<double>::infinity()}};
  write_fit(fit);
  const auto read = find_fit(options_.store, fit.id);
  ASSERT_EQ(read.history.size(), 2u);
  EXPECT_TRUE(std::isnan(*read.history[0].validation_loss));
  EXPECT_TRUE(std::isnan(read.history[0].metrics.at("correlation")));
  EXPECT_EQ(read.history[0].metrics.at("mae"), 2);
  EXPECT_FALSE(std::isfinite(read.history[0].training_metrics.at("correlation")));
  EXPECT_EQ(read.best_loss(), 3);
}

TEST_F(FitStore, ContinuesWhatIsUnfinishedAndTheSame) {
  auto first = open_fit(options_, "table.h5");
  first.history = {epoch(1, 5)};
  write_fit(first);
  EXPECT_EQ(open_fit(options_, "table.h5").id, first.id);
  EXPECT_EQ(open_fit(options_, "table.h5").history.size(), 1u);
  EXPECT_NE(open_fit(options_, "other.h5").id, first.id);
  auto other = options_;
  other.lr *= 2;
  EXPECT_NE(open_fit(other, "table.h5").id, first.id);
  first.finished = true;
  write_fit(first);
  EXPECT_NE(open_fit(options_, "table.h5").id, first.id);
  EXPECT_THAT(ids(), testing::ElementsAre(first.id));  // folders without fit.json are no fits
}

// Earlier versions wrote the members of objects sorted by name.
TEST_F(FitStore, TheOrderOfMembersDoesNotMatter) {
  options_.losses = {"mse", "mae"};
  options_.input_shapes = {{1, 28, 28}, {1}};
  auto fit = open_fit(options_, "table.h5");
  write_fit(fit);
  const auto file = fit.folder / "fit.json";
  write_file_atomically(file, nlohmann::json::parse(read_whole_file(file).value()).dump());
  EXPECT_EQ(open_fit(options_, "table.h5").id, fit.id);
}

TEST_F(FitStore, AnEpochWithoutANumberIsNotTheBest) {
  FitRecord record;
  for (const double loss : {nan, 4.0, 5.0}) {
    record.history.push_back(epoch(static_cast<std::int64_t>(record.history.size()) + 1, loss));
    EXPECT_FALSE(record.out_of_patience(2));
  }
  record.history.push_back(epoch(4, nan));
  EXPECT_TRUE(record.out_of_patience(2));
  FitRecord unknown;
  for (int number = 1; number < 6; ++number) unknown.history.push_back(epoch(number, nan));
  EXPECT_FALSE(unknown.out_of_patience(2));
  EXPECT_FALSE(record.out_of_patience(0));
  EXPECT_EQ(record.best_loss(), 4);
}

}  // namespace
}  // namespace farandole

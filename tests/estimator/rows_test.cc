#include "farandole/estimator/rows.h"

#include <cmath>
#include <gmock/gmock.h>
#include <limits>
#include <torch/utils.h>

#include "estimator/fixtures.h"

namespace farandole {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Three rows, numbered from 10 on in the table that they are a batch of. The second has a NaN.
class RowTensorsTest : public testing::Test {
 protected:
  RowTensorsTest() {
    const float gap = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> pixels = {1, 2, 3, gap, 5, 6}, weights = {1, 2, 4};
    add({"pixels", DType::float32, {2}}, bytes_of_numbers(pixels));
    add({"word", DType::int64, {}}, bytes_of_numbers(std::vector<std::int64_t>{7, 8, 9}));
    add({"class", DType::int64, {}}, bytes_of_numbers(std::vector<std::int64_t>{0, 1, 3}));
    add({"weight", DType::float32, {}}, bytes_of_numbers(weights));
    options_.features = {"pixels", "word:int64"};
    options_.labels = {"class"};
    options_.sample_weight = "weight";
  }
  void add(const DataColumn& column, const std::vector<std::byte>& bytes) {
    table_.add(column, bytes);
    data_.push_back(std::make_shared<Bytes>(bytes.begin(), bytes.end()));
  }
  Rows take() {
    RowTensors tensors(table_, options_, /*with_labels=*/true);
    TableBatch batch{{10, 11, 12}, {}};
    for (const auto column : tensors.columns()) batch.columns.push_back(data_[column]);
    return tensors.take(std::move(batch));
  }

  MemoryTable table_{"numbers.csv", 3};
  EstimatorOptions options_;
  std::vector<std::shared_ptr<Bytes>> data_;
};

TEST_F(RowTensorsTest, ANanIsNamedByRowAndColumn) {
  EXPECT_THAT(message_of<CorruptInput>([&] { take(); }),
              AllOf(HasSubstr("numbers.csv: column pixels has a NaN in row 11"),
                    HasSubstr("`farandole fit --nan skip`")));
}

TEST_F(RowTensorsTest, ANanMayBeInALabelOrAWeight) {
  const float gap = std::numeric_limits<float>::quiet_NaN();
  add({"price", DType::float32, {}}, bytes_of_numbers(std::vector<float>{1, gap, 3}));
  options_.features = {"word"};
  for (const bool of_label : {true, false}) {
    options_.nan = "error";
    options_.labels = {of_label ? "price" : "class"};
    options_.sample_weight = of_label ? "weight" : "price";
    EXPECT_THAT(message_of<CorruptInput>([&] { take(); }), HasSubstr("column price has a NaN in row 11"));
    options_.nan = "skip";
    EXPECT_THAT(take().numbers, ElementsAre(10, 12));
    options_.nan = "keep";
    EXPECT_EQ(take().size(), 3);
  }
}

TEST_F(RowTensorsTest, SkipLeavesOutTheWholeRow) {
  options_.nan = "skip";
  const auto rows = take();
  EXPECT_THAT(rows.numbers, ElementsAre(10, 12));
  EXPECT_TRUE(torch::equal(rows.inputs[0], torch::tensor({{1.F, 2.F}, {5.F, 6.F}})));
  EXPECT_TRUE(torch::equal(rows.inputs[1], torch::tensor({7, 9}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(rows.labels[0], torch::tensor({0, 3}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(rows.weight, torch::tensor({1.F, 4.F})));
}

TEST_F(RowTensorsTest, ColumnsInBracketsAreOneVector) {
  options_.nan = "skip";
  options_.features = {"[word, pixels,weight]", "[word]:int64", "word"};
  const auto rows = take();
  EXPECT_TRUE(torch::equal(rows.inputs[0], torch::tensor({{7.F, 1.F, 2.F, 1.F}, {9.F, 5.F, 6.F, 4.F}})));
  EXPECT_TRUE(torch::equal(rows.inputs[1], torch::tensor({7, 9}, torch::kInt64).unsqueeze(1)));
  EXPECT_TRUE(torch::equal(rows.inputs[2], torch::tensor({7.F, 9.F})));
  EXPECT_TRUE(torch::equal(rows.labels[0], torch::tensor({0, 3}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(rows.weight, torch::tensor({1.F, 4.F})));
  options_.input_shapes = {{2, 2}, {1}, {1}};
  EXPECT_EQ(take().inputs[0].sizes(), (std::vector<std::int64_t>{2, 2, 2}));
  options_.input_shapes = {{5}, {1}, {1}};
  EXPECT_THAT(
      message_of<UserError>([&] { take(); }),
      HasSubstr("--input-shapes [5] does not fit the columns word,pixels,weight of numbers.csv, whose rows "
                "have shape [4]"));
  for (const auto* wrong : {"[a,b", "a]", "[]", "[a,,b]", "", "[a,b]:int32"})
    EXPECT_THAT(message_of<UserError>([&] { Feature::parse(wrong); }), HasSubstr(wrong)) << wrong;
}

TEST_F(RowTensorsTest, KeepLeavesTheNan) {
  options_.nan = "keep";
  const auto rows = take();
  EXPECT_EQ(rows.size(), 3);
  EXPECT_TRUE(std::isnan(rows.inputs[0][1][1].item<float>()));
}

TEST_F(RowTensorsTest, FeaturesAreFloatsInTheShapeThatWasAskedFor) {
  options_.nan = "keep";
  options_.features = {"pixels", "word"};
  options_.input_shapes = {{1, 2, 1}};
  const auto rows = take();
  EXPECT_EQ(rows.inputs[0].sizes(), (std::vector<std::int64_t>{3, 1, 2, 1}));
  EXPECT_TRUE(torch::equal(rows.inputs[1], torch::tensor({7.F, 8.F, 9.F})));
}

TEST_F(RowTensorsTest, RefusesShapesAndColumnsThatDoNotFit) {
  options_.input_shapes = {{3}};
  EXPECT_THAT(
      message_of<UserError>([&] { take(); }),
      HasSubstr("--input-shapes [3] does not fit column pixels of numbers.csv, whose rows have shape [2]"));
  options_.input_shapes = {};
  options_.labels = {"clas"};
  EXPECT_THAT(message_of<UserError>([&] { take(); }), AllOf(HasSubstr("clas"), HasSubstr("class")));
}

TEST_F(RowTensorsTest, NamesTheRowOfALabelThatIsNoClass) {
  options_.nan = "keep";
  const auto rows = take();
  const RowTensors tensors(table_, options_, true);
  tensors.check_labels(torch::zeros({3, 4}), rows, 0);
  EXPECT_THAT(
      message_of<CorruptInput>([&] {
        tensors.check_labels(torch::zeros({3, 3}), rows, 0);
      }),
      HasSubstr("column class has the label 3 in row 12; the model has 3 classes, so labels are 0 to 2"));
}

TEST(RowsPerPass, FitIntoMemory) {
  EXPECT_EQ(rows_per_pass(7, 1 << 30), 7);
  EXPECT_EQ(rows_per_pass(0, 1), 256);
  EXPECT_EQ(rows_per_pass(0, 1 << 20), 16);
  EXPECT_EQ(rows_per_pass(0, 1 << 30), 1);
  EXPECT_EQ(rows_per_pass(0, 0), 256);
}

}  // namespace
}  // namespace farandole

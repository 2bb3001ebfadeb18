#include "farandole/analyzer/model/training_log.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <unistd.h>

#include "analyzer/trace_builder.h"

#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using namespace ::testing;

class TrainingLogTest : public ::testing::Test {
 protected:
  TrainingLog read(const std::string& text) {
    testing::write_text(folder_ / "metrics.jsonl", text);
    return read_training_log(folder_ / "metrics.jsonl");
  }
  TemporaryFolder folder_;
};

std::vector<std::string> names(const TrainingLog& log) {
  std::vector<std::string> found;
  for (const auto& curve : log.curves) found.push_back(curve.name);
  return found;
}

TEST_F(TrainingLogTest, HasEveryNumberWithAnyKey) {
  const auto log = read(
      R"({"step":1,"epoch":0,"loss":4.5,"lr":0.1,"samples_per_s":100,"step_ms":20,"my reward":-3}
{"step":2,"epoch":0,"loss":2,"lr":0.2,"note":"text","flag":true,"nested":{"a":1},"list":[1]}
{"step":2,"epoch":0,"eval_accuracy":0.5,"eval_loss":2.5}
)");
  EXPECT_THAT(names(log), ElementsAre("loss", "eval_loss", "eval_accuracy", "lr", "my reward",
                                      "samples_per_s", "step_ms"));
  const auto& loss = *log.find("loss");
  EXPECT_EQ(loss.first(), 4.5);
  EXPECT_EQ(loss.points().back().last, 2);
  EXPECT_EQ(loss.lowest().low_step, 2);
  EXPECT_EQ(loss.highest().high_step, 1);
  EXPECT_EQ(log.find("my reward")->points().size(), 1U);
  EXPECT_THAT(log.warnings, IsEmpty());
}

TEST_F(TrainingLogTest, KnowsWhatWasNotFinite) {
  const auto log = read(
      R"({"step":1,"loss":1}
{"step":2,"epoch":0,"event":"skipped step","reason":"a gradient is not finite"}
{"step":3,"loss":null}
{"step":9,"loss":7}
{"step":9,"event":"rollback","to_step":4,"reason":"three in a row"}
{"step":5,"loss":0.5}
)");
  EXPECT_EQ(log.skipped_steps, 1U);
  EXPECT_EQ(log.rollbacks, 1U);
  ASSERT_EQ(log.events.size(), 2U);
  EXPECT_EQ(log.events[0].step, 2);
  EXPECT_EQ(log.events[1].to_step, 4);
  const auto& loss = *log.find("loss");
  EXPECT_EQ(loss.not_finite(), 1U);
  // The loss of step 9 was rolled back.
  EXPECT_EQ(loss.points().size(), 2U);
  EXPECT_EQ(loss.points().back().last, 0.5);
  EXPECT_EQ(loss.highest().high, 1);
}

TEST_F(TrainingLogTest, HasTheLastUseOfEachRank) {
  const auto log = read(
      R"({"step":1,"cpu_percent":[10,20],"memory_mib":[100,200]}
{"step":2,"cpu_percent":[50,60],"memory_mib":[300,400],"gpu_percent":[70,null],"gpu_memory_mib":[1,null]}
)");
  EXPECT_THAT(log.curves, IsEmpty());
  ASSERT_EQ(log.use.size(), 2U);
  EXPECT_EQ(log.use[1].memory_mib, 400);
  EXPECT_EQ(log.use[0].gpu_percent, 70);
  EXPECT_FALSE(log.use[1].gpu_percent);
  EXPECT_FALSE(log.use[1].read_mb);
}

TEST_F(TrainingLogTest, KeepsLowestAndHighestOfManyValues) {
  std::string text;
  for (int step = 0; step < 50'000; ++step)
    text += fmt::format("{{\"step\":{},\"loss\":{}}}\n", step,
                        step == 12'345   ? 1e6
                        : step == 40'001 ? -5
                                         : 1 + step % 7);
  const auto log = read(text);
  const auto& loss = *log.find("loss");
  EXPECT_LE(loss.points().size(), Curve::most_points);
  EXPECT_GE(loss.points().size(), Curve::most_points / 2);
  EXPECT_EQ(loss.highest().high, 1e6);
  EXPECT_EQ(loss.highest().high_step, 12'345);
  EXPECT_EQ(loss.lowest().low, -5);
  EXPECT_EQ(loss.lowest().low_step, 40'001);
  std::uint64_t count = 0;
  std::int64_t last = -1;
  for (const auto& point : loss.points()) {
    EXPECT_EQ(point.first_step, last + 1);
    last = point.last_step;
    count += point.count;
  }
  EXPECT_EQ(last, 49'999);
  EXPECT_EQ(count, 50'000U);
}

TEST_F(TrainingLogTest, ReadsWhatIsSoundInADamagedFile) {
  auto log = read(
      "{\"step\":1,\"loss\":1}\nnonsense\n{\"loss\":2}\n[1]\n{\"step\":1e300,\"loss\":1}\n"
      "{\"step\":4,\"loss\":3}\n{\"step\":5,\"lo");
  EXPECT_EQ(log.find("loss")->points().size(), 2U);
  EXPECT_THAT(log.warnings, ElementsAre(HasSubstr("4 damaged lines left out, the first is line 2")));
  std::string bytes(100'000, '\0');
  std::mt19937 random(7);  // NOLINT: the same bytes each time.
  for (auto& byte : bytes) byte = static_cast<char>(random());
  EXPECT_EQ(read(bytes).warnings.size(), 1U);
  EXPECT_THAT(read("").warnings, IsEmpty());
  std::filesystem::remove(folder_ / "metrics.jsonl");
  EXPECT_THAT(read_training_log(folder_ / "metrics.jsonl").warnings, IsEmpty());
  std::filesystem::create_directory(folder_ / "metrics.jsonl");
  EXPECT_THAT(read_training_log(folder_ / "metrics.jsonl").warnings,
              ElementsAre(HasSubstr("not a regular file; loss and metrics are unknown")));
}

TEST_F(TrainingLogTest, IsBoundedIfEachLineHasAnotherKey) {
  std::string text;
  for (int i = 0; i < 1'000; ++i) text += fmt::format("{{\"step\":{},\"key {}\":1}}\n", i, i);
  const auto log = read(text);
  EXPECT_EQ(log.curves.size(), 200U);
  EXPECT_THAT(log.warnings, ElementsAre(HasSubstr("more than 200 different keys")));
}

// A sparse file: its lines end behind a hole of 300 MB, which counts as one line that is too long.
TEST_F(TrainingLogTest, OfAHugeFileHasAPartOfItsLines) {
  std::string text = "\n";
  for (int step = 0; step < 300; ++step) text += fmt::format("{{\"step\":{},\"loss\":1}}\n", step);
  text += R"({"step":300,"event":"skipped step"})"
          "\n";
  std::ofstream file(folder_ / "metrics.jsonl", std::ios::binary);
  file.seekp(300'000'000);
  file << text;
  file.close();
  const auto log = read_training_log(folder_ / "metrics.jsonl");
  std::uint64_t count = 0;
  for (const auto& point : log.find("loss")->points()) count += point.count;
  EXPECT_EQ(count, 100U);
  EXPECT_EQ(log.skipped_steps, 1U);
  EXPECT_THAT(log.warnings, ElementsAre(HasSubstr("only one of 3 lines was read")));
}

}  // namespace
}  // namespace farandole

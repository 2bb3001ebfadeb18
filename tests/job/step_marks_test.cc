#include "farandole/job/step_marks.h"

#include <gtest/gtest.h>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/run_timeline.h"

namespace farandole {
namespace {

class StepMarksTest : public testing::Test {
 protected:
  StepMarksTest() : timeline(run_timeline(run.path())) {}

  int step(const void* optimizer) { return marks.end(timeline, optimizer, now_ns(), set_step); }
  // The numbers of the recorded step spans.
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> numbers;
    for (const auto& record : RecorderFile(timeline.file()).records(0))
      if (record.category == Category::step) numbers.push_back(record.step);
    return numbers;
  }
  bool are_counted() const { return RecorderFile(timeline.file()).counts_own_steps(); }

  const TemporaryFolder run;
  Timeline timeline;
  StepMarks marks;
  const StepMarks::SetStep set_step = [this](std::int64_t number) { timeline.set_step(number); };
  const int one = 0, other = 0;
};

using Numbers = std::vector<std::int64_t>;

TEST_F(StepMarksTest, NumbersAndMarksTheStepsOfAProgramThatDoesNot) {
  for (int i = 0; i < 3; ++i) step(&one);
  EXPECT_EQ(steps(), Numbers({1, 2}));
  EXPECT_EQ(timeline.step(), 3);
  EXPECT_TRUE(are_counted());
}

TEST_F(StepMarksTest, MarksTheFirstStepIfItsBeginIsKnown) {
  marks.begin_first(now_ns(), set_step);
  EXPECT_EQ(timeline.step(), 0);
  for (int i = 0; i < 3; ++i) step(nullptr);
  marks.begin_first(now_ns(), set_step);  // does nothing
  EXPECT_EQ(steps(), Numbers({0, 1, 2}));
}

TEST_F(StepMarksTest, CountsOneOfSeveralOptimizers) {
  for (int i = 0; i < 3; ++i) {
    step(&one);
    step(&other);
  }
  EXPECT_EQ(steps(), Numbers({1, 2}));
  marks.forget(&one);
  step(&other);
  EXPECT_EQ(steps(), Numbers({1, 2, 3}));
}

TEST_F(StepMarksTest, CountsAnotherOptimizerIfTheFirstOneStops) {
  marks.begin_first(now_ns(), set_step);
  EXPECT_EQ(step(&one), 1);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(step(&other), 0);
  EXPECT_EQ(step(&one), 1);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(step(&other), 0);  // twice as many as before
  EXPECT_EQ(step(&other), 13);
  EXPECT_EQ(step(&other), 1);
  EXPECT_EQ(steps().size(), 16u);
  EXPECT_EQ(timeline.step(), 16);
}

TEST_F(StepMarksTest, LeaveTheNumbersToAProgramThatHasThem) {
  for (const int number : {70, 71, 72}) {  // set after the step
    step(&one);
    marks.program_numbers_steps();
    timeline.set_step(number);
  }
  EXPECT_EQ(steps(), Numbers({70, 71}));
  EXPECT_FALSE(are_counted());
  marks.program_marks_steps();
  step(&one);
  EXPECT_EQ(steps(), Numbers({70, 71}));
}

TEST_F(StepMarksTest, LeaveTheSpansToAProgramThatHasThem) {
  for (int i = 0; i < 2; ++i) {
    const Span span(timeline, Category::step, "mine");
    const Span inner(timeline, Category::optimizer, "update");
    step(&one);
  }
  EXPECT_EQ(steps().size(), 2u);
  EXPECT_EQ(timeline.step(), 2);
}

}  // namespace
}  // namespace farandole

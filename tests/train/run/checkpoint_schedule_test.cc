#include "farandole/train/run/checkpoint_schedule.h"

#include <gmock/gmock.h>
#include <vector>

#include "trainer/data_fixtures.h"

namespace farandole {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = CheckpointInterval::Kind;

// The steps at which a run of steps of 1 s saves. A checkpoint needs `write` seconds; its cost is `cost`.
std::vector<std::int64_t> saves_of(CheckpointInterval interval, std::int64_t steps, double write = 0,
                                   double cost = 0, int* questions = nullptr, std::int64_t first = 0) {
  CheckpointSchedule schedule(interval, 3600, first, 0);
  std::vector<std::int64_t> saves;
  std::int64_t ask_at = 0;
  double written_at = 0;
  for (std::int64_t step = first + 1; step <= steps; ++step) {
    const auto now = static_cast<double>(step - first);
    if (step < ask_at) continue;
    if (questions != nullptr) ++*questions;
    const auto answer = schedule.ask(step, now >= written_at, now);
    EXPECT_GT(answer.ask_again, step);
    ask_at = answer.ask_again;
    if (!answer.save) continue;
    saves.push_back(step);
    written_at = now + write;
    schedule.saved(step, now, cost);
  }
  return saves;
}

TEST(CheckpointSchedule, SavesEverySoManySteps) {
  EXPECT_THAT(saves_of({Kind::steps, 4}, 14), ElementsAre(4, 8, 12));
  EXPECT_THAT(saves_of({Kind::steps, 4}, 14, 0, 0, nullptr, 6), ElementsAre(8, 12));  // resumed
  EXPECT_THAT(saves_of({}, 14), ElementsAre());
}

TEST(CheckpointSchedule, PostponesASaveUntilTheOneBeforeIsWritten) {
  EXPECT_THAT(saves_of({Kind::steps, 4}, 20, 5), ElementsAre(4, 9, 14, 19));
  EXPECT_THAT(saves_of({Kind::time, 2}, 10, 3), ElementsAre(2, 5, 8));
}

TEST(CheckpointSchedule, SavesByTimeWithFewQuestions) {
  int questions = 0;
  EXPECT_THAT(saves_of({Kind::time, 300}, 1000, 0, 0, &questions), ElementsAre(300, 600, 900));
  EXPECT_LT(questions, 50);
}

TEST(CheckpointSchedule, AutomaticFollowsCostAndFailures) {
  EXPECT_NEAR(young_interval(0.5, 3600), 60, 1e-9);
  EXPECT_THAT(saves_of({Kind::automatic, 0}, 220, 0, 0.5), ElementsAre(2, 62, 122, 182));
}

TEST(CheckpointInterval, IsStepsEpochsTimeOrAuto) {
  const auto is = [](const char* text, Kind kind, double amount) {
    const auto parsed = CheckpointInterval::parse(text);
    return parsed.kind == kind && parsed.amount == amount;
  };
  EXPECT_TRUE(is("500steps", Kind::steps, 500));
  EXPECT_TRUE(is("2epochs", Kind::epochs, 2));
  EXPECT_TRUE(is("10min", Kind::time, 600));
  EXPECT_TRUE(is("0.5h", Kind::time, 1800));
  EXPECT_TRUE(is("auto", Kind::automatic, 0));
  for (const auto* text :
       {"", "500", "0steps", "-1steps", "1.5steps", "steps", "0s", "10 min", "automatic", "99999999999steps"})
    EXPECT_THAT(message_of<UserError>([&] { CheckpointInterval::parse(text); }),
                HasSubstr("--checkpoint-every"))
        << text;
}

}  // namespace
}  // namespace farandole

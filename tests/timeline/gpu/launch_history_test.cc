#include "farandole/timeline/gpu/launch_history.h"

#include <atomic>
#include <gtest/gtest.h>
#include <random>
#include <thread>
#include <utility>

#include "lane.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

using Place = std::pair<std::int64_t, std::optional<Category>>;

Place at(const LaunchHistory& history, std::int64_t time) {
  const TrainingPlace place = history.place_at(time);
  return {place.step, place.phase};
}

TEST(LaunchHistory, TellsStepAndPhaseOfATime) {
  LaunchHistory history;
  EXPECT_EQ(at(history, 5), Place(-1, std::nullopt));
  history.set_step(0, 10);
  history.enter(Category::forward, 12);
  history.enter(Category::forward, 13);
  history.enter(Category::backward, 15);
  history.enter(std::nullopt, 18);
  history.set_step(-1, 20);
  history.set_step(1, 30);
  EXPECT_EQ(at(history, 9), Place(-1, std::nullopt));
  EXPECT_EQ(at(history, 11), Place(0, std::nullopt));
  EXPECT_EQ(at(history, 12), Place(0, Category::forward));
  EXPECT_EQ(at(history, 14), Place(0, Category::forward));
  EXPECT_EQ(at(history, 15), Place(0, Category::backward));
  EXPECT_EQ(at(history, 19), Place(0, std::nullopt));
  EXPECT_EQ(at(history, 29), Place(-1, std::nullopt));
  EXPECT_EQ(at(history, 1000), Place(1, std::nullopt));
}

TEST(LaunchHistory, ForgetsWhatIsLongAgo) {
  LaunchHistory history;
  for (std::int64_t i = 0; i < 100'000; ++i) history.set_step(i, 100 + i);
  EXPECT_EQ(history.place_at(100'000).step, 99'900);
  EXPECT_EQ(history.place_at(50).step, -1);
  EXPECT_EQ(history.place_at(200).step, -1);
}

// Step n begins at 10 n. Forward is at its even times, backward at its odd times. Each answer must be right
// or empty, and some must not be empty, although marks are overwritten all the time.
TEST(LaunchHistory, AnswersWhileItIsWritten) {
  LaunchHistory history;
  std::atomic<std::int64_t> steps{0};
  std::atomic<bool> enough{false};
  std::thread marking([&] {
    for (std::int64_t n = 0; n < 50'000 || !enough.load(); ++n) {
      history.enter(std::nullopt, 10 * n);
      history.set_step(n, 10 * n);
      history.enter(Category::forward, 10 * n + 2);
      history.enter(Category::backward, 10 * n + 5);
      steps.store(n + 1);
    }
  });
  std::mt19937_64 random(seed(7));
  for (int answers = 0; answers < 20'000;) {
    const auto now = steps.load();
    // Asks for recent steps and for steps that are being overwritten.
    const auto back = random() % 2 == 0 ? random() % 100 : 16'300 + random() % 200;
    const auto n = now - 1 - static_cast<std::int64_t>(back);
    if (n < 0) continue;
    const auto offset = static_cast<std::int64_t>(random() % 10);
    const auto found = at(history, 10 * n + offset);
    if (found == Place(-1, std::nullopt)) continue;
    ++answers;
    const auto phase = offset < 2   ? std::nullopt
                       : offset < 5 ? std::optional(Category::forward)
                                    : std::optional(Category::backward);
    const bool right = found == Place(n, phase);
    EXPECT_TRUE(right) << found.first << " for step " << n << ", time " << offset;
    if (!right) break;
  }
  enough.store(true);
  marking.join();
  const auto last = steps.load() - 1;
  EXPECT_EQ(at(history, 10 * last + 7), Place(last, Category::backward));
}

// The phase is that of the innermost span with a phase. Spans of other threads must not count.
TEST(LaunchHistory, IsToldByTheTrainingThreadsSpans) {
  const TemporaryFolder folder;
  TimelineOptions options{.file = folder / "rank-0000.ftl", .recorder_bytes = 1 << 20};
  Timeline timeline(options);
  timeline.name_thread("training");
  LaunchHistory history;
  timeline.tell_phases(&history);
  const auto phase = [&] { return history.place_at(now_ns()).phase; };
  {
    const Span step(timeline, Category::step, "step");
    EXPECT_EQ(phase(), std::nullopt);
    {
      const Span backward(timeline, Category::backward, "backward");
      EXPECT_EQ(phase(), Category::backward);
      const Span note(timeline, Category::other, "a note");
      EXPECT_EQ(phase(), Category::backward);
      std::thread([&] {
        timeline.name_thread("autograd");
        const Span other(timeline, Category::forward, "forward");
        EXPECT_EQ(phase(), Category::backward);
      }).join();
      {
        const Span wait(timeline, Category::wait, "wait");
        EXPECT_EQ(phase(), Category::wait);
      }
      EXPECT_EQ(phase(), Category::backward);
    }
    EXPECT_EQ(phase(), std::nullopt);
    timeline.tell_phases(nullptr);
    const Span untold(timeline, Category::optimizer, "update");
    EXPECT_EQ(phase(), std::nullopt);
  }
}

}  // namespace
}  // namespace farandole

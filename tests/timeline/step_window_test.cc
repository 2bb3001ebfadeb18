#include "farandole/timeline/step_window.h"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "lane.h"
#include "timeline/recorded_threads.h"

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

TEST(StepWindow, ParsesWhatTheOptionTakes) {
  const auto parse = [](const char* text) { return StepWindow::parse(text, "--timeline"); };
  EXPECT_TRUE(parse("off").off());
  EXPECT_FALSE(parse("all").off());
  EXPECT_EQ(parse("all").last, INT64_MAX);
  EXPECT_EQ(parse("steps=7-7").first, 7);
  EXPECT_EQ(parse("steps=10-20").last, 20);
  for (const char* text :
       {"", "on", "steps", "steps=", "steps=5", "steps=-5", "steps=5-", "steps=a-b", "steps=1-2x",
        "steps=1--2", "steps= 1-2", "steps=9-8", "steps=1-99999999999999999999", "all "})
    EXPECT_THROW(parse(text), UserError) << text;
}

TEST(StepWindow, ParsesStepsAlone) {
  const auto parse = [](const char* text) { return StepWindow::parse_steps(text, "--steps"); };
  EXPECT_EQ(parse("all").last, INT64_MAX);
  EXPECT_EQ(parse("0-0").last, 0);
  EXPECT_EQ(parse("100-200").first, 100);
  for (const char* text : {"", "off", "5", "-5", "5-", "steps=1-2", "9-8", "1-2x", "1--2", "all "})
    EXPECT_THROW(parse(text), UserError) << text;
  try {
    parse("5");
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "--steps cannot be '5'; give the first and the last step, for example 100-200, or all");
  }
}

TEST(StepWindow, IsKeptToByTheTimeline) {
  const TemporaryFolder folder;
  TimelineOptions options = options_in(folder);
  options.window = {2, 3};
  {
    Timeline timeline(options);
    timeline.name_thread("training");
    const NameId name = timeline.intern("x");
    for (const std::int64_t step : {-1, 0, 1, 2, 3, 4, -1}) {
      timeline.set_step(step);
      timeline.span(Category::other, name, 1, 2);
      timeline.instant(name);
      timeline.span_on({0}, Category::other, name, {.step = step}, 1, 2);
    }
  }
  const RecorderFile file(options.file);
  std::vector<std::int64_t> steps;
  for (const Record& record : file.records(0)) steps.push_back(record.step);
  EXPECT_THAT(steps, testing::ElementsAre(-1, -1, -1, 2, 2, 2, 3, 3, 3));

  options.window = StepWindow::parse("off", "--timeline");
  options.file = folder / "off.ftl";
  EXPECT_FALSE(Timeline(options).enabled());
  EXPECT_FALSE(std::filesystem::exists(options.file));
}

// Events come before, between and after the steps. Each thread must keep its first events of the window.
TEST(StepWindow, IsKeptAsItBegan) {
  std::mt19937 random(seed(5));
  std::uint64_t all_dropped = 0;
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    TimelineOptions options = options_in(folder);
    options.window = {static_cast<std::int64_t>(random() % 3), 3 + static_cast<std::int64_t>(random() % 4)};
    constexpr int threads = 3;
    std::array<std::vector<std::int64_t>, threads> wanted;
    {
      Timeline timeline(options);
      bool passed = false;
      const auto record = [&](std::int64_t step, std::size_t most) {
        timeline.set_step(step);
        passed |= step > options.window.last;
        const auto events = static_cast<std::int64_t>(random() % most);
        run_together(threads, [&](int thread) {
          timeline.name_thread("worker " + std::to_string(thread));
          for (std::int64_t i = 0; i < events; ++i) {
            const auto at = step * 1'000'000 + i;
            timeline.span(Category::other, "work", at, at + 1);
            if (step < 0 ? !passed : step >= options.window.first && step <= options.window.last)
              wanted[static_cast<std::size_t>(thread)].push_back(at);
          }
        });
        passed |= step == options.window.last;
      };
      for (std::int64_t step = 0; step < 10; ++step) {
        record(step, 3000);
        record(-1, 200);
      }
    }
    const RecorderFile file(options.file);
    file.verify();
    std::uint64_t dropped = 0;
    for (std::size_t thread = 0; thread < threads; ++thread) {
      const auto slot = slot_of(file, "worker " + std::to_string(thread));
      EXPECT_EQ(file.threads()[slot].overwritten, 0u);
      std::vector<std::int64_t> kept;
      for (const Record& one : file.records(slot)) kept.push_back(one.start_ns);
      ASSERT_LE(kept.size(), wanted[thread].size());
      dropped += wanted[thread].size() - kept.size();
      wanted[thread].resize(kept.size());
      ASSERT_EQ(kept, wanted[thread]);
    }
    EXPECT_EQ(file.dropped(), dropped);
    all_dropped += dropped;
  }
  EXPECT_GT(all_dropped, 0u);
}

}  // namespace
}  // namespace farandole

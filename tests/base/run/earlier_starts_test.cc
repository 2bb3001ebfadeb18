#include "farandole/base/run/earlier_starts.h"

#include <fstream>
#include <gtest/gtest.h>

#include "farandole/base/clock.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

TEST(EarlierStarts, TheNewestTwentyKeepTheirRecorders) {
  const TemporaryFolder run;
  for (int start = 1; start <= 22; ++start) {
    fs::create_directories(run / "recorder");
    std::ofstream(run / "recorder/rank-0000.ftl") << start;
    std::ofstream(run / "timeline.json.gz") << start;
    std::ofstream(run / "run.json") << start;
    keep_earlier_start(run.path());
  }
  const auto starts = earlier_starts(run.path());
  ASSERT_EQ(starts.size(), 22u);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    EXPECT_EQ(fs::exists(starts[i] / "recorder/rank-0000.ftl"), i >= 2) << starts[i];
    EXPECT_EQ(fs::exists(starts[i] / "timeline.json.gz"), i >= 2) << starts[i];
    EXPECT_TRUE(fs::exists(starts[i] / "run.json")) << starts[i];
  }
}

// A launcher that was killed has recorded no end. The launcher of the next start may already have written
// its own record.
TEST(EarlierStarts, KeepTheRecordOfALauncherThatWasKilled) {
  const TemporaryFolder run;
  fs::create_directories(run / "launch");
  for (const bool next : {false, true}) {
    fs::create_directories(run / "recorder");
    std::ofstream(run / "recorder/rank-0000.ftl") << "records";
    std::ofstream(run / "run.json") << "{}";
    const auto now = real_time_ns(), hour = 3600 * ns_per_second;
    std::ofstream(run / "launch/job.json") << R"({"start_ns": )" << (next ? now + hour : now - hour) << "}";
    keep_earlier_start(run.path());
    EXPECT_EQ(fs::exists(earlier_starts(run.path()).back() / "launch/job.json"), !next);
  }
}

TEST(EarlierStarts, AreKnownByTheirPaths) {
  for (const char* folder : {"run/starts/0001", "run/starts/0012/", "/run/./starts/0001"})
    EXPECT_TRUE(is_earlier_start(folder)) << folder;
  for (const char* folder : {"run", "run/starts", "run/0001", "starts/run", ""})
    EXPECT_FALSE(is_earlier_start(folder)) << folder;
}

}  // namespace
}  // namespace farandole

#include "farandole/base/run/earlier_starts.h"

#include <fstream>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace farandole

#include "farandole/launch/restart_policy.h"

#include <fstream>
#include <gmock/gmock.h>

#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST(RestartPolicy, StartsAgainUpToTheLimit) {
  RestartPolicy policy(2);
  EXPECT_EQ(policy.decide({137, false, ""}).message, "restart 1 of 2");
  EXPECT_TRUE(policy.decide({70, false, ""}).restart);
  const auto last = policy.decide({137, false, ""});
  EXPECT_FALSE(last.restart);
  EXPECT_TRUE(last.diagnose);
  EXPECT_THAT(last.message, HasSubstr("started again 2 times"));
  EXPECT_FALSE(RestartPolicy(0).decide({137, false, ""}).restart);
}

TEST(RestartPolicy, LeavesJobsThatAreNotToStartAgain) {
  for (const int code : {0, 64, 65, 75})
    EXPECT_FALSE(RestartPolicy(9).decide({code, false, ""}).restart) << code;
  EXPECT_FALSE(RestartPolicy(9).decide({143, true, ""}).restart);
}

TEST(RestartPolicy, EndsWhatFailsThreeTimesAtTheSameStep) {
  const TemporaryFolder folder;
  const auto fails = [&](RestartPolicy& policy, int code, int step) {
    write(folder / "metrics.jsonl", "{\"step\":" + std::to_string(step) + "}\n");
    return policy.decide({code, false, folder.path()});
  };
  RestartPolicy policy(99);
  EXPECT_TRUE(fails(policy, 1, 5).restart);
  EXPECT_TRUE(fails(policy, 1, 5).restart);
  EXPECT_TRUE(fails(policy, 1, 6).restart);
  EXPECT_TRUE(fails(policy, 137, 6).restart);
  EXPECT_TRUE(fails(policy, 1, 6).restart);
  EXPECT_TRUE(fails(policy, 1, 6).restart);
  const auto last = fails(policy, 1, 6);
  EXPECT_FALSE(last.restart);
  EXPECT_THAT(last.message, HasSubstr("3 times in a row with exit code 1 at step 6"));
}

TEST(RestartPolicy, ReadsProgressOfDamagedRuns) {
  const TemporaryFolder folder;
  EXPECT_EQ(progress_of(folder.path()), "");
  EXPECT_EQ(progress_of(folder / "absent"), "");
  write(folder / "metrics.jsonl", "{\"step\":3}\n{\"step\":4}\n{\"step\":5");
  EXPECT_EQ(progress_of(folder.path()), "step 4");
  write(folder / "checkpoints/step-00000004.h5", "");
  write(folder / "checkpoints/step-00000010.h5", "");
  write(folder / "checkpoints/.step-00000099.h5.host.1.tmp", "");
  EXPECT_EQ(progress_of(folder.path()), "step 4, checkpoint step-00000010.h5");
  write(folder / "metrics.jsonl", std::string(1 << 20, '\n') + "{\"step\":7}\n");
  EXPECT_EQ(progress_of(folder.path()), "step 7, checkpoint step-00000010.h5");
  for (const auto* text : {"", "\n", "[]\n", "{\"step\":\"x\"}\n", "{\"step\":1.5}\n", "\xff\xfe\n"}) {
    write(folder / "metrics.jsonl", text);
    EXPECT_EQ(progress_of(folder.path()), "checkpoint step-00000010.h5") << text;
  }
}

}  // namespace
}  // namespace farandole

#include "farandole/comm/recording/merge_claim.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "farandole/base/temporary_folder.h"

namespace farandole {
namespace {

using namespace std::chrono_literals;

class MergeClaimTest : public testing::Test {
 protected:
  // The claim as it looks once it has changed from `before`.
  MergeClaim::Sight changed_from(const MergeClaim::Sight& before) const {
    for (;;) {
      const auto now = MergeClaim::look(file_);
      if (!now || *now != before) return now.value_or(MergeClaim::Sight{});
      std::this_thread::sleep_for(1ms);
    }
  }
  // A process that has the claim until it is killed.
  pid_t start_owner() const {
    const pid_t owner = ::fork();
    if (owner == 0) {
      const MergeClaim claim(file_, 5ms);
      for (;;) ::pause();
    }
    while (!MergeClaim::look(file_)) std::this_thread::sleep_for(1ms);
    return owner;
  }
  static void end(pid_t owner) {
    ::kill(owner, SIGKILL);
    ::waitpid(owner, nullptr, 0);
  }

  const TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_ / "merging";
};

TEST_F(MergeClaimTest, OneHasItAtATime) {
  EXPECT_FALSE(MergeClaim::look(file_));
  {
    const MergeClaim first(file_);
    EXPECT_TRUE(first.won());
    EXPECT_TRUE(MergeClaim::look(file_));
    {
      const MergeClaim second(file_);
      EXPECT_FALSE(second.won());
    }
    EXPECT_TRUE(MergeClaim::look(file_)) << "the loser has removed it";
  }
  EXPECT_FALSE(MergeClaim::look(file_));
  EXPECT_TRUE(MergeClaim(file_).won());
  EXPECT_FALSE(MergeClaim(folder_ / "no/such/folder").won());
}

// Whatever its owner does or waits for.
TEST_F(MergeClaimTest, ChangesWhileItsOwnerRuns) {
  const auto owner = start_owner();
  auto sight = *MergeClaim::look(file_);
  for (int beat = 0; beat < 5; ++beat) {
    const auto next = changed_from(sight);
    EXPECT_EQ(next.inode, sight.inode);
    sight = next;
  }
  int status = 0;
  ::kill(owner, SIGSTOP);
  ASSERT_EQ(::waitpid(owner, &status, WUNTRACED), owner);
  ASSERT_TRUE(WIFSTOPPED(status));
  sight = *MergeClaim::look(file_);
  std::this_thread::sleep_for(100ms);  // many beats
  EXPECT_EQ(MergeClaim::look(file_), sight) << "who is stopped does not merge";
  ::kill(owner, SIGCONT);
  EXPECT_EQ(changed_from(sight).inode, sight.inode);
  end(owner);
}

TEST_F(MergeClaimTest, OnlyWhatWasSeenIsRemoved) {
  const auto owner = start_owner();
  const auto alive = *MergeClaim::look(file_);
  changed_from(alive);
  MergeClaim::remove(file_, alive);
  EXPECT_TRUE(MergeClaim::look(file_)) << "it has changed since";
  end(owner);
  const auto stale = *MergeClaim::look(file_);
  MergeClaim::remove(file_, stale);
  EXPECT_FALSE(MergeClaim::look(file_));
  // Another's, which may get the same inode.
  const MergeClaim next(file_);
  EXPECT_TRUE(next.won());
  MergeClaim::remove(file_, stale);
  EXPECT_TRUE(MergeClaim::look(file_));
}

// One that was taken for dead comes back.
TEST_F(MergeClaimTest, TheOwnerRemovesNoOther) {
  {
    const MergeClaim taken_for_dead(file_);
    MergeClaim::remove(file_, *MergeClaim::look(file_));
    std::ofstream(file_) << "another's";
  }
  EXPECT_TRUE(MergeClaim::look(file_));
}

}  // namespace
}  // namespace farandole

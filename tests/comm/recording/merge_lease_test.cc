#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "farandole/base/files/temporary_folder.h"
#include "farandole/comm/recording/trace_requests.h"

namespace farandole {
namespace {

using namespace std::chrono_literals;

class MergeLeaseTest : public testing::Test {
 protected:
  // The state of the lease after it has changed from `before`.
  FileSight changed_from(const FileSight& before) const { return changed_from(before, file_); }
  static FileSight changed_from(const FileSight& before, const std::filesystem::path& file) {
    for (;;) {
      const auto now = sight_of(file);
      if (!now || *now != before) return now.value_or(FileSight{});
      std::this_thread::sleep_for(1ms);
    }
  }
  // A process that holds the lease until it is killed.
  pid_t start_owner() const { return start_owner(file_); }
  static pid_t start_owner(const std::filesystem::path& file) {
    const pid_t owner = ::fork();
    if (owner == 0) {
      const MergeLease claim(file, 5ms);
      for (;;) ::pause();
    }
    while (!sight_of(file)) std::this_thread::sleep_for(1ms);
    return owner;
  }
  static void end(pid_t owner) {
    ::kill(owner, SIGKILL);
    ::waitpid(owner, nullptr, 0);
  }

  const TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_ / "merging";
};

TEST_F(MergeLeaseTest, OneHasItAtATime) {
  EXPECT_FALSE(sight_of(file_));
  {
    const MergeLease first(file_);
    EXPECT_TRUE(first.won());
    EXPECT_TRUE(sight_of(file_));
    {
      const MergeLease second(file_);
      EXPECT_FALSE(second.won());
    }
    EXPECT_TRUE(sight_of(file_)) << "the loser has removed it";
  }
  EXPECT_FALSE(sight_of(file_));
  EXPECT_TRUE(MergeLease(file_).won());
  EXPECT_FALSE(MergeLease(folder_ / "no/such/folder").won());
}

// The lease changes whatever its owner does or waits for.
TEST_F(MergeLeaseTest, ChangesWhileItsOwnerRuns) {
  const auto owner = start_owner();
  auto sight = *sight_of(file_);
  for (int beat = 0; beat < 5; ++beat) {
    const auto next = changed_from(sight);
    EXPECT_EQ(next.inode, sight.inode);
    sight = next;
  }
  int status = 0;
  ::kill(owner, SIGSTOP);
  ASSERT_EQ(::waitpid(owner, &status, WUNTRACED), owner);
  ASSERT_TRUE(WIFSTOPPED(status));
  sight = *sight_of(file_);
  // The beats of a process that runs take the time in which this one would have changed its lease.
  const auto others = folder_ / "other";
  const auto other = start_owner(others);
  auto others_sight = *sight_of(others);
  for (int beat = 0; beat < 5; ++beat) others_sight = changed_from(others_sight, others);
  end(other);
  EXPECT_EQ(sight_of(file_), sight) << "who is stopped does not merge";
  ::kill(owner, SIGCONT);
  EXPECT_EQ(changed_from(sight).inode, sight.inode);
  end(owner);
}

TEST_F(MergeLeaseTest, OnlyWhatWasSeenIsRemoved) {
  const auto owner = start_owner();
  const auto alive = *sight_of(file_);
  changed_from(alive);
  MergeLease::remove(file_, alive);
  EXPECT_TRUE(sight_of(file_)) << "it has changed since";
  end(owner);
  const auto stale = *sight_of(file_);
  MergeLease::remove(file_, stale);
  EXPECT_FALSE(sight_of(file_));
  // The lease of another owner, which may get the same inode.
  const MergeLease next(file_);
  EXPECT_TRUE(next.won());
  MergeLease::remove(file_, stale);
  EXPECT_TRUE(sight_of(file_));
}

// An owner that was considered dead resumes.
TEST_F(MergeLeaseTest, TheOwnerRemovesNoOther) {
  {
    const MergeLease taken_for_dead(file_);
    MergeLease::remove(file_, *sight_of(file_));
    std::ofstream(file_) << "another's";
  }
  EXPECT_TRUE(sight_of(file_));
}

}  // namespace
}  // namespace farandole

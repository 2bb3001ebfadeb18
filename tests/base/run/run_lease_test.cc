#include "farandole/base/run/run_lease.h"

#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <spdlog/spdlog.h>
#include <string>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "error_message.h"
#include "lane.h"
#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class RunLeaseTest : public testing::Test {
 protected:
  static constexpr RunLease::Times quick{5ms, 400ms};

  static void nobody(const std::string& message) { FAIL() << message; }
  // Empty if the lease could be taken.
  std::string refusal() const {
    try {
      const RunLease lease(run_, nobody, quick);
      return {};
    } catch (const UserError& error) {
      return error.what();
    }
  }
  // Another process holds the lease until it is killed.
  pid_t start_holder() const {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t holder = ::fork();
    if (holder == 0) {
      const RunLease lease(
          run_, [](const std::string&) { ::_exit(7); }, quick);
      [[maybe_unused]] const auto told = ::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    return holder;
  }
  static void kill_and_wait(pid_t holder) {
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
  }
  std::vector<std::string> leases() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run_)) names.push_back(entry.path().filename());
    return names;
  }
  fs::path only_lease() const { return run_ / leases().at(0); }
  // What the holder says of itself, as a process on another host would have written it.
  void move_holder_to_another_host() const {
    nlohmann::json holder;
    std::ifstream(only_lease()) >> holder;
    holder["host"] = "node7";
    holder["boot"] = "another";
    std::ofstream(only_lease()) << holder;
  }

  const TemporaryFolder run_folder_;
  const fs::path run_ = run_folder_.path();
};

TEST_F(RunLeaseTest, IsGivenBack) {
  EXPECT_FALSE(find_lease_holder(run_));
  {
    const RunLease lease(run_, nobody, quick);
    EXPECT_TRUE(lease.held());
    EXPECT_THAT(leases(), testing::ElementsAre("lease-0001.json"));
  }
  EXPECT_THAT(leases(), testing::IsEmpty());
}

// A job whose file system gives no answer goes on, but publishes nothing until there is one.
TEST_F(RunLeaseTest, IsNotLostIfTheLookFails) {
  const pid_t holder = ::fork();
  if (holder == 0) {
    const RunLease lease(
        run_, [](const std::string&) { ::_exit(7); }, quick);
    const auto file = only_lease();
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit none{1, limit.rlim_max};  // poll() accepts no more descriptors than this.
    ::setrlimit(RLIMIT_NOFILE, &none);
    const auto touched = [&] {
      struct stat status {};
      ::stat(file.c_str(), &status);
      return changed_ns(status);
    };
    for (int beats = 0; beats < 4; ++beats)
      for (const auto before = touched(); touched() == before;) std::this_thread::yield();
    const auto what = message_of<Error>([&] { lease.held(); });
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::_exit(what.find("Too many open files") == std::string::npos ? 8 : lease.held() ? 0 : 9);
  }
  int status = 0;
  ::waitpid(holder, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "7: counted as lost; 8: held() gives an answer; 9: not held after it";
}

TEST_F(RunLeaseTest, ALivingHolderIsNamedAtOnce) {
  const pid_t holder = start_holder();
  EXPECT_EQ(find_lease_holder(run_).value().pid, holder);
  EXPECT_EQ(find_lease_holder(run_)->alive, true);
  EXPECT_THAT(refusal(), testing::HasSubstr("is in use by process " + std::to_string(holder) + " on "));
  EXPECT_THROW(refuse_if_in_use(run_), UserError);
  // Also one that is stopped: it may go on.
  ::kill(holder, SIGSTOP);
  EXPECT_THAT(refusal(), testing::HasSubstr("process " + std::to_string(holder)));
  // A zombie does not hold it.
  ::kill(holder, SIGKILL);
  siginfo_t ended;
  ::waitid(P_PID, static_cast<id_t>(holder), &ended, WEXITED | WNOWAIT);
  EXPECT_EQ(find_lease_holder(run_).value().alive, false);
  EXPECT_EQ(refusal(), "");
  EXPECT_THAT(leases(), testing::IsEmpty());
  ::waitpid(holder, nullptr, 0);
}

TEST_F(RunLeaseTest, AHolderOnAnotherHostIsSeenByItsBeats) {
  const pid_t holder = start_holder();
  move_holder_to_another_host();
  refuse_if_in_use(run_);  // cannot know
  EXPECT_THAT(refusal(), testing::HasSubstr(" on node7"));
  EXPECT_THAT(leases(), testing::ElementsAre("lease-0001.json"));
  kill_and_wait(holder);
  EXPECT_EQ(refusal(), "");
}

TEST_F(RunLeaseTest, AStoppedHolderOnAnotherHostIsReplacedAndEndsWhenItGoesOn) {
  const pid_t holder = start_holder();
  move_holder_to_another_host();
  ::kill(holder, SIGSTOP);
  int status = 0;
  ::waitpid(holder, &status, WUNTRACED);
  ASSERT_TRUE(WIFSTOPPED(status));
  const RunLease lease(run_, nobody, quick);
  EXPECT_THAT(leases(), testing::ElementsAre("lease-0002.json"));
  ::kill(holder, SIGCONT);
  ::waitpid(holder, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_TRUE(lease.held());
}

TEST_F(RunLeaseTest, ACopiedRunDirectoryIsNobodys) {
  const pid_t holder = start_holder();
  const TemporaryFolder copy;
  fs::copy(only_lease(), copy / "lease-0001.json");
  EXPECT_TRUE(RunLease(copy.path(), nobody, quick).held());
  kill_and_wait(holder);
}

TEST_F(RunLeaseTest, ARequeuedSlurmJobSucceedsItself) {
  ::setenv("SLURM_JOB_ID", "55", 1);
  const pid_t holder = start_holder();
  move_holder_to_another_host();
  EXPECT_THAT(refusal(), testing::HasSubstr("(Slurm job 55)"));
  ::setenv("SLURM_RESTART_COUNT", "1", 1);
  EXPECT_EQ(refusal(), "");
  ::unsetenv("SLURM_JOB_ID");
  ::unsetenv("SLURM_RESTART_COUNT");
  ::waitpid(holder, nullptr, 0);  // it sees that another took over
}

TEST_F(RunLeaseTest, AFileThatSaysNothingIsALeaseUntilItIsOld) {
  for (const char* text : {"", "{", "[]", R"({"process": "x"})", "\xff"}) {
    std::ofstream(run_ / "lease-0041.json") << text;
    EXPECT_EQ(refusal(), "") << text;
    EXPECT_THAT(leases(), testing::IsEmpty());
  }
  std::ofstream(run_ / "lease-41.json") << "somebody's file";
  EXPECT_EQ(refusal(), "");
  EXPECT_THAT(leases(), testing::ElementsAre("lease-41.json"));
}

// Processes take the lease again and again and are killed at random moments. Whoever holds it also locks a
// file, which would fail if another held it too.
TEST_F(RunLeaseTest, NeverTwoHoldIt) {
  std::mt19937 random(seed(20261123));
  const TemporaryFolder proof;
  for (int round = 0; round < rounds(12, 200); ++round) {
    std::vector<pid_t> all;
    for (int i = 0; i < 4; ++i) {
      const pid_t child = ::fork();
      all.push_back(child);
      if (child != 0) continue;
      spdlog::set_level(spdlog::level::off);
      for (;;) {
        try {
          const RunLease lease(
              run_, [](const std::string&) {}, quick);
          const int fd = ::open((proof / "held").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
          if (::flock(fd, LOCK_EX | LOCK_NB) != 0) ::_exit(2);
          ::close(fd);
        } catch (const UserError&) {
        }
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    for (std::size_t i = 0; i < all.size(); ++i) {
      ::kill(all[i], SIGKILL);
      int status = 0;
      ::waitpid(all[i], &status, 0);
      ASSERT_TRUE(WIFSIGNALED(status)) << "two held it in round " << round;
    }
  }
}

}  // namespace
}  // namespace farandole

#include "farandole/launch/records/session_folder.h"

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <sys/file.h>
#include <unistd.h>

#include "farandole/base/host.h"
#include "farandole/launch/process/machine.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

class Sessions : public testing::Test {
 protected:
  // As a launcher that was killed leaves it.
  fs::path leftover(const std::string& name, const std::string& host) {
    const auto folder = parent_ / name;
    fs::create_directories(folder / "ompi.host.0" / "pid.7");
    if (!host.empty()) std::ofstream(folder / ("launcher-" + host + ".lock"));
    return folder;
  }

  const TemporaryFolder parent_;
};

TEST_F(Sessions, GoWithTheirScope) {
  std::optional<SessionFolder> one(parent_.path()), other(parent_.path());
  EXPECT_NE(one->path(), other->path());
  EXPECT_EQ(one->path().parent_path(), parent_.path());
  fs::create_directories(one->path() / "ompi.host.0" / "pid.7");
  one.reset();
  EXPECT_TRUE(fs::exists(other->path())) << "it is in use";
  other.reset();
  EXPECT_TRUE(fs::is_empty(parent_.path()));
}

TEST_F(Sessions, RemoveThoseOfKilledLaunchers) {
  const auto dead = leftover("farandole-dead00", host_name());
  const auto used = leftover("farandole-used00", host_name());
  const auto elsewhere = leftover("farandole-else00", "another-host");
  const auto beginning = leftover("farandole-begins", "");
  const auto foreign = leftover("other-dead00", host_name());
  const OwnedDescriptor lock(
      ::open((used / ("launcher-" + host_name() + ".lock")).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  const SessionFolder session(parent_.path());
  EXPECT_FALSE(fs::exists(dead));
  for (const auto& folder : {used, elsewhere, beginning, foreign}) EXPECT_TRUE(fs::exists(folder)) << folder;
}

// Makes a file as Open MPI names its shared memory. Job numbers of this test are above those that Open
// MPI can give.
fs::path shared_memory(std::uint32_t job, int local_rank) {
  const auto host = host_name();
  fs::path file = fmt::format("/dev/shm/vader_segment.{}.{}.{:x}.{}", host.substr(0, host.find('.')),
                              ::geteuid(), job, local_rank);
  std::ofstream(file) << "x";
  return file;
}

TEST_F(Sessions, RemoveTheSharedMemoryOfTheirMpirun) {
  const auto number = 0xf0000000 + static_cast<std::uint32_t>(::getpid());
  const auto dead = leftover("farandole-dead00", host_name());
  note_open_mpi_job(dead, number);
  const std::array segments = {shared_memory(number, 0), shared_memory(number, 1)};
  const auto other = shared_memory(number + (1u << 26), 0);
  { const SessionFolder session(parent_.path()); }
  for (const auto& segment : segments) EXPECT_FALSE(fs::exists(segment)) << segment;
  EXPECT_TRUE(fs::exists(other)) << "it belongs to nobody that is known";
  {
    const SessionFolder session(parent_.path());
    note_open_mpi_job(session.path(), number + (1u << 26));
  }
  EXPECT_FALSE(fs::exists(other));
  note_open_mpi_job(parent_.path() / "absent", number);
  EXPECT_TRUE(fs::is_empty(parent_.path()));
}

// A shell script in PATH answers for Slurm.
TEST_F(Sessions, OfAnotherHostGoWithTheirSlurmJob) {
  const TemporaryFolder programs;
  std::ofstream(programs / "scontrol")
      << "#!/bin/bash\n"
         "case $3 in\n"
         "1) echo 'JobState=RUNNING Restarts=0' ;;\n"
         "2) echo 'JobState=RUNNING Restarts=1' ;;\n"
         "3) echo 'JobState=FAILED Restarts=0' ;;\n"
         "4) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;\n"
         "*) echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1 ;;\n"
         "esac\n";
  fs::permissions(programs / "scontrol", fs::perms::owner_all);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (programs.path().string() + ":" + path).c_str(), 1);
  std::array<fs::path, 6> folders;
  for (int job = 1; job <= 5; ++job) {
    folders[static_cast<std::size_t>(job)] = leftover(fmt::format("farandole-host0{}", job), "another-host");
    std::ofstream(folders[static_cast<std::size_t>(job)] / "slurm-job") << job << " 0\n";
  }
  const SessionFolder session(parent_.path());
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_TRUE(fs::exists(folders[1])) << "it runs";
  EXPECT_FALSE(fs::exists(folders[2])) << "it was requeued";
  EXPECT_FALSE(fs::exists(folders[3])) << "it has failed";
  EXPECT_FALSE(fs::exists(folders[4])) << "Slurm has forgotten it";
  EXPECT_TRUE(fs::exists(folders[5])) << "Slurm does not answer";
}

TEST_F(Sessions, GoWhereTheUserWantsThem) {
  const auto changes_with = [&](const std::string& chosen) {
    return session_environment(parent_.path(),
                               [&](const char* name) { return name == chosen ? "/scratch" : nullptr; });
  };
  EXPECT_EQ(changes_with("").size(), 2U);
  EXPECT_EQ(changes_with("").front().second, parent_.path().string());
  EXPECT_TRUE(changes_with("OMPI_MCA_orte_tmpdir_base").empty());
  EXPECT_TRUE(changes_with("PRTE_MCA_prte_local_tmpdir_base").empty());
}

}  // namespace
}  // namespace farandole

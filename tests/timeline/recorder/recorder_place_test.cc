#include "farandole/timeline/recorder/recorder_place.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

constexpr std::size_t bytes = std::size_t{64} << 20, reserve = std::size_t{256} << 20;
constexpr std::int64_t lustre = 0x0BD00BD0, ext4 = 0xEF53, tmpfs = 0x01021994, nfs = 0x6969;

// A machine with given environment variables and, for each folder, file system type and free space.
struct Machine {
  std::map<std::string, std::string> environment;
  std::map<std::string, std::pair<std::int64_t, std::uint64_t>> folders;
  std::uint64_t all_bytes = std::uint64_t{1} << 30;  // of each folder

  RecorderMachine machine() const {
    return {[this](const char* name) {
              const auto found = environment.find(name);
              return found == environment.end() ? nullptr : found->second.c_str();
            },
            [this](const std::filesystem::path& path) {
              const auto found = folders.find(path);
              return found == folders.end() ? -1 : found->second.first;
            },
            [this](const std::filesystem::path& path) {
              const auto found = folders.find(path);
              return found == folders.end() ? RecorderMachine::Room{}
                                            : RecorderMachine::Room{found->second.second, all_bytes};
            }};
  }
  std::string place(const std::string& run_dir, const std::string& wish = "auto",
                    std::uint64_t needed = bytes) const {
    const auto found = place_recorder(run_dir, {wish}, needed, machine());
    EXPECT_EQ(found.chosen, !found.folder.empty() && wish == "auto");
    return found.folder;
  }
};

TEST(RecorderPlace, KnowsWhatIsReachedOverANetwork) {
  for (const std::int64_t type : {0x0BD00BD0LL, 0x47504653LL, 0x6969LL, 0x19830326LL, 0x00C36400LL,
                                  0xFF534D42LL, 0xFE534D42LL, 0xAAD7AAEALL, 0x65735546LL})
    EXPECT_TRUE(is_network_file_system(type)) << type;
  // ext4, XFS, btrfs, tmpfs, overlayfs, ZFS, ramfs, F2FS, none
  for (const std::int64_t type : {0xEF53LL, 0x58465342LL, 0x9123683ELL, 0x01021994LL, 0x794C7630LL,
                                  0x2FC12FC1LL, 0x858458F6LL, 0xF2F52010LL, -1LL})
    EXPECT_FALSE(is_network_file_system(type)) << type;
}

TEST(RecorderPlace, IsOnTheNodeWhereTheRunDirectoryIsNot) {
  Machine machine;
  machine.folders = {{"/lustre/run", {lustre, bytes * 10}}, {"/home/run", {nfs, bytes * 10}},
                     {"/local/run", {ext4, bytes * 10}},    {"/tmp", {ext4, bytes * 10}},
                     {"/dev/shm", {tmpfs, bytes * 10}},     {"/scratch/job7", {ext4, bytes * 10}},
                     {"/lustre/tmp", {lustre, bytes * 10}}};
  EXPECT_EQ(machine.place("/local/run"), "");
  EXPECT_EQ(machine.place("/lustre/run"), "/tmp");
  EXPECT_EQ(machine.place("/home/run"), "/tmp");
  EXPECT_EQ(machine.place("/lustre/run", "run"), "");
  EXPECT_EQ(machine.place("/local/run", "/scratch/job7"), "/scratch/job7");
  machine.environment["TMPDIR"] = "/scratch/job7";
  EXPECT_EQ(machine.place("/lustre/run"), "/scratch/job7");
  EXPECT_EQ(machine.place("/local/run"), "");
  machine.environment["TMPDIR"] = "/lustre/tmp";
  EXPECT_EQ(machine.place("/lustre/run"), "/tmp") << "no better than the run directory";
  machine.environment["SLURM_TMPDIR"] = "/scratch/job7";
  EXPECT_EQ(machine.place("/lustre/run"), "/scratch/job7");
  machine.folders["/scratch/job7"].second = bytes + reserve - 1;
  EXPECT_EQ(machine.place("/lustre/run"), "/tmp") << "not enough space";
  machine.folders["/tmp"].second = 0;
  EXPECT_EQ(machine.place("/lustre/run"), "/dev/shm");
  machine.folders.erase("/dev/shm");
  EXPECT_EQ(machine.place("/lustre/run"), "");
}

// Space is needed for the recorders of all ranks of a node and for other users, for
// example Open MPI's sessions.
TEST(RecorderPlace, LeavesRoomForOthers) {
  constexpr std::uint64_t mebibyte = 1 << 20, gibibyte = 1 << 30, ranks = 128;
  Machine machine;
  const auto fits = [&](std::uint64_t free, std::uint64_t all) {
    machine.folders = {{"/lustre/run", {lustre, gibibyte}}, {"/tmp", {tmpfs, free}}};
    machine.all_bytes = all;
    return machine.place("/lustre/run", "auto", ranks * bytes) == "/tmp";
  };
  EXPECT_FALSE(fits(8 * gibibyte, 8 * gibibyte)) << "this would fill the disk";
  EXPECT_FALSE(fits(8 * gibibyte + 819 * mebibyte, 8 * gibibyte)) << "a tenth must stay free";
  EXPECT_TRUE(fits(8 * gibibyte + 820 * mebibyte, 8 * gibibyte));
  EXPECT_FALSE(fits(12 * gibibyte - 1, 7000 * gibibyte)) << "4 GiB must stay free";
  EXPECT_TRUE(fits(12 * gibibyte, 7000 * gibibyte));
  EXPECT_FALSE(fits(100 * mebibyte, 200 * mebibyte));
}

TEST(RecorderPlace, SaysWhoWishedForAFolderThatIsNone) {
  Machine machine;
  EXPECT_EQ(wished_place(machine.machine()).place, "auto");
  machine.environment["FARANDOLE_RECORDER_DIR"] = "";
  EXPECT_EQ(wished_place(machine.machine()).place, "auto");
  machine.environment["FARANDOLE_RECORDER_DIR"] = "/proc/nowhere";
  const auto text_of = [&](const RecorderWish& wish) -> std::string {
    try {
      place_recorder("/run", wish, bytes, machine.machine());
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(
      text_of(wished_place(machine.machine())),
      testing::StartsWith("FARANDOLE_RECORDER_DIR is '/proc/nowhere', but this is not a writable folder"));
  EXPECT_THAT(text_of({"/elsewhere"}),
              testing::StartsWith("--recorder-dir is '/elsewhere', but this is not a writable folder"));
}

TEST(RecorderPlace, RefusesAFolderThatIsNone) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  for (const std::string& wish : {std::string(), (folder / "file").string(), (folder / "missing").string()})
    EXPECT_THROW(place_recorder(folder.path(), {wish}, bytes), UserError) << wish;
  EXPECT_EQ(place_recorder(folder / "not/made/yet", {"run"}, bytes).folder, "");
  EXPECT_EQ(place_recorder(folder / "run", {folder.path()}, bytes).folder, folder.path());
}

TimelineOptions options_on_node(const TemporaryFolder& folder) {
  std::filesystem::create_directories(folder / "node");
  return {.file = folder / "run/recorder/rank-0000.ftl",
          .recorder_bytes = 1 << 20,
          .node_folder = folder / "node"};
}

TEST(RecorderPlace, ATimelineThatEndsBringsItsRecorder) {
  const TemporaryFolder folder;
  TimelineOptions options = options_on_node(folder);
  {
    Timeline timeline(options);
    timeline.span(Category::forward, "forward", 1, 2);
    EXPECT_EQ(timeline.file().parent_path(), options.node_folder);
    EXPECT_FALSE(std::filesystem::exists(options.file));
    const RecorderFile live(timeline.file());
    EXPECT_EQ(live.records(0).size(), 1u);
    EXPECT_THROW(RecorderFile{options.file}, UserError);
  }
  const RecorderFile file(options.file);
  file.verify();
  EXPECT_TRUE(file.closed());
  EXPECT_EQ(file.records(0).size(), 1u);
  EXPECT_TRUE(std::filesystem::is_empty(options.node_folder));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "run/recorder"), {}), 1);
  // From now on the file is written in the run directory.
  options.node_folder.clear();
  const Timeline timeline(options);
  EXPECT_EQ(timeline.file(), options.file);
}

// A folder of the node is open to all users, and the run directory is as open as its owner made it.
TEST(RecorderPlace, ARecorderOnTheNodeIsForItsOwnerOnly) {
  const TemporaryFolder folder;
  auto options = options_on_node(folder);
  struct stat status {};
  const auto mask = ::umask(022);
  {
    const Timeline timeline(options);
    ASSERT_EQ(::stat(timeline.file().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
  }
  ASSERT_EQ(::stat(options.file.c_str(), &status), 0);
  ::umask(mask);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
}

// As with `ulimit -f`. The kernel sends SIGXFSZ, which ends a program, to who tries.
TEST(RecorderPlace, AFileSizeLimitEndsNoProgram) {
  const TemporaryFolder folder;
  TimelineOptions options{.file = folder / "recorder/rank-0000.ftl"};
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{64 << 10, 64 << 10};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    ::_exit(Timeline(options).enabled() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(std::filesystem::exists(options.file));
}

// The node's folder was chosen automatically and has become full. It is a file system of its own if this
// machine allows to mount one.
TEST(RecorderPlace, AFullNodeLeavesTheRecorderInTheRunDirectory) {
  const TemporaryFolder folder;
  TimelineOptions options = options_on_node(folder);
  enum { as_expected, lies_elsewhere, left_something, records_anyway, not_allowed };
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string files = "size=512k";
    if (::unshare(::geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", options.node_folder.c_str(), "tmpfs", 0, files.c_str()) != 0)
      ::_exit(not_allowed);
    // An explicitly requested folder is not replaced.
    if (Timeline(options).enabled()) ::_exit(records_anyway);
    options.node_folder_chosen = true;
    Timeline timeline(options);
    if (timeline.file() != options.file) ::_exit(lies_elsewhere);
    const bool nothing = std::filesystem::is_empty(options.node_folder) &&
                         !std::filesystem::is_symlink(node_link(options.file));
    ::_exit(nothing ? as_expected : left_something);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == not_allowed) GTEST_SKIP() << "no file system may be mounted here";
  EXPECT_EQ(WEXITSTATUS(status), as_expected);
}

}  // namespace
}  // namespace farandole

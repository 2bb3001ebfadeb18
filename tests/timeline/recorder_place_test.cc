#include "farandole/timeline/recorder_place.h"

#include <fstream>
#include <gtest/gtest.h>
#include <map>

#include "temporary_folder.h"

#include "farandole/base/error.h"
#include "farandole/timeline/recorder_file.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

constexpr std::size_t bytes = std::size_t{64} << 20;
constexpr std::int64_t lustre = 0x0BD00BD0, ext4 = 0xEF53, tmpfs = 0x01021994, nfs = 0x6969;

// A machine of given mounts: variables, and type and room of each folder.
struct Machine {
  std::map<std::string, std::string> environment;
  std::map<std::string, std::pair<std::int64_t, std::uint64_t>> folders;

  std::string place(const std::string& run_dir, const std::string& wish = "auto") const {
    const RecorderMachine machine{[this](const char* name) {
                                    const auto found = environment.find(name);
                                    return found == environment.end() ? nullptr : found->second.c_str();
                                  },
                                  [this](const std::filesystem::path& path) {
                                    const auto found = folders.find(path);
                                    return found == folders.end() ? -1 : found->second.first;
                                  },
                                  [this](const std::filesystem::path& path) {
                                    const auto found = folders.find(path);
                                    return found == folders.end() ? 0 : found->second.second;
                                  }};
    return place_recorder(run_dir, wish, bytes, machine);
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
  machine.folders["/scratch/job7"].second = bytes;
  EXPECT_EQ(machine.place("/lustre/run"), "/tmp") << "no room";
  machine.folders["/tmp"].second = 0;
  EXPECT_EQ(machine.place("/lustre/run"), "/dev/shm");
  machine.folders.erase("/dev/shm");
  EXPECT_EQ(machine.place("/lustre/run"), "");
}

TEST(RecorderPlace, RefusesAFolderThatIsNone) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  for (const std::string& wish : {std::string(), (folder / "file").string(), (folder / "missing").string()})
    EXPECT_THROW(place_recorder(folder.path(), wish, bytes), UserError) << wish;
  EXPECT_EQ(place_recorder(folder / "not/made/yet", "run", bytes), "");
  EXPECT_EQ(place_recorder(folder / "run", folder.path(), bytes), folder.path());
}

TEST(RecorderPlace, ATimelineThatEndsBringsItsRecorder) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "node");
  TimelineOptions options;
  options.file = folder / "run/recorder/rank-0000.ftl";
  options.recorder_bytes = 1 << 20;
  options.node_folder = folder / "node";
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
  // In place from now on.
  options.node_folder.clear();
  const Timeline timeline(options);
  EXPECT_EQ(timeline.file(), options.file);
}

}  // namespace
}  // namespace farandole

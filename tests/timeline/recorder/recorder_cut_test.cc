#include "farandole/timeline/recorder/recorder_cut.h"

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <optional>
#include <span>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "hang.h"

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

// The space on the disk.
std::int64_t allocated_bytes(const fs::path& file) {
  struct stat status {};
  EXPECT_EQ(::stat(file.c_str(), &status), 0) << file;
  return std::int64_t{status.st_blocks} * 512;
}

TimelineOptions options_in(const fs::path& run_dir, int rank, std::size_t bytes = std::size_t{64} << 20) {
  return {.file = recorder_file(run_dir, rank), .recorder_bytes = bytes, .rank = rank, .world_size = 8};
}

void record(Timeline& timeline, std::int64_t events) {
  timeline.name_thread("training");
  timeline.set_metadata("mpi", "4.1");
  for (std::int64_t i = 0; i < events; ++i) timeline.span(Category::other, "work", i, i + 1);
}

struct Contents {
  std::vector<Record> records;
  std::vector<std::string> names;

  explicit Contents(const fs::path& path) {
    const RecorderFile file(path);
    file.verify();
    names = file.names();
    for (std::size_t slot = 0; slot < file.threads().size(); ++slot)
      for (const auto& record : file.records(slot)) records.push_back(record);
  }
  bool operator==(const Contents& other) const {
    return names == other.names && records.size() == other.records.size() &&
           std::memcmp(records.data(), other.records.data(), records.size() * sizeof(Record)) == 0;
  }
};

// Records in a child process, on two threads, and kills it.
void record_and_be_killed(const TimelineOptions& options) {
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    end_if_it_hangs(300);
    Timeline timeline(options);
    std::thread([&] { timeline.span(Category::data, "load", 5, 6); }).join();
    record(timeline, 6'000);
    if (::write(told[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  ::close(told[1]);
  char byte = 0;
  EXPECT_EQ(::read(told[0], &byte, 1), 1);
  EXPECT_FALSE(cut_recorder(options.file)) << "it still records";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(told[0]);
}

TEST(RecorderCut, AnEndedRecorderKeepsWhatItHas) {
  const TemporaryFolder folder;
  const auto options = options_in(folder.path(), 3);
  std::optional<Contents> before;
  {
    Timeline timeline(options);
    record(timeline, 6'000);
    EXPECT_GE(allocated_bytes(options.file), std::int64_t{63} << 20);
    before.emplace(options.file);
  }
  EXPECT_LE(allocated_bytes(options.file), 1 << 20);
  EXPECT_LE(fs::file_size(options.file), 10u << 20);
  EXPECT_TRUE(RecorderFile(options.file).closed());
  EXPECT_EQ(before->records.size(), 6'000u);
  EXPECT_TRUE(Contents(options.file) == *before);
}

TEST(RecorderCut, SoDoesThatOfAKilledProcess) {
  const TemporaryFolder folder;
  const auto options = options_in(folder.path(), 1);
  record_and_be_killed(options);
  const Contents before(options.file);
  EXPECT_GE(allocated_bytes(options.file), std::int64_t{63} << 20);
  const auto changed = changed_ns(options.file);
  EXPECT_TRUE(cut_recorder(options.file));
  EXPECT_LE(allocated_bytes(options.file), 1 << 20);
  EXPECT_EQ(changed_ns(options.file), changed);
  EXPECT_EQ(before.records.size(), 6'001u);
  EXPECT_TRUE(Contents(options.file) == before);
  EXPECT_TRUE(cut_recorder(options.file)) << "again";
  EXPECT_TRUE(Contents(options.file) == before);
}

TEST(RecorderCut, AFullRecorderKeepsEachRecord) {
  const TemporaryFolder folder;
  const auto options = options_in(folder.path(), 0, recorder::smallest_file);
  std::uint64_t kept = 0;
  {
    Timeline timeline(options);
    record(timeline, 50'000);
    kept = Contents(options.file).records.size();
  }
  EXPECT_GT(kept, 1'000u);
  EXPECT_EQ(Contents(options.file).records.size(), kept);
}

// On the disk of a node, too, from where the file is copied.
TEST(RecorderCut, ACopyFromTheNodeIsSmall) {
  const TemporaryFolder folder, node;
  auto options = options_in(folder.path(), 0);
  options.node_folder = node.path();
  {
    Timeline timeline(options);
    record(timeline, 6'000);
  }
  EXPECT_LE(allocated_bytes(options.file), 1 << 20);
  EXPECT_EQ(Contents(options.file).records.size(), 6'000u);
}

TEST(RecorderCut, RanksShareTheFilesOfARun) {
  const TemporaryFolder folder;
  for (const int rank : {0, 1, 4}) record_and_be_killed(options_in(folder.path(), rank, 1 << 20));
  cut_recorders(folder.path(), 0, 2);
  EXPECT_LE(allocated_bytes(recorder_file(folder.path(), 0)), 700 << 10);
  EXPECT_LE(allocated_bytes(recorder_file(folder.path(), 4)), 700 << 10);
  EXPECT_GE(allocated_bytes(recorder_file(folder.path(), 1)), 1'000 << 10);
  cut_recorders(folder.path(), 1, 2);
  EXPECT_LE(allocated_bytes(recorder_file(folder.path(), 1)), 700 << 10);
}

// What is wrong with a file is evidence, and other files are not ours.
TEST(RecorderCut, LeavesDamagedFilesAlone) {
  const TemporaryFolder folder;
  const auto options = options_in(folder.path(), 2, 1 << 20);
  record_and_be_killed(options);
  const RawData file(options.file, O_RDWR);
  const std::uint64_t impossible = std::uint64_t{1} << 61;
  file.write(4096, std::as_bytes(std::span(&impossible, 1)));
  EXPECT_FALSE(cut_recorder(options.file));
  EXPECT_GE(allocated_bytes(options.file), 1'000 << 10);
  EXPECT_FALSE(cut_recorder(folder / "nothing.ftl"));
}

}  // namespace
}  // namespace farandole

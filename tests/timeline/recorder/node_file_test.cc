#include "farandole/timeline/recorder/node_file.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "hang.h"
#include "mutation.h"
#include "timeline/gzip/unzipped.h"
#include "timeline/synthetic_run.h"

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/merge/run_recorders.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/run_timeline.h"

namespace farandole {
namespace {

using namespace ::testing;
namespace fs = std::filesystem;

std::string all_bytes(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}
void put_bytes(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

class NodeFile : public Test {
 protected:
  const fs::path& run() const { return folder_.path(); }
  TimelineOptions options_of(int rank) const {
    return {.file = recorder_file(run(), rank),
            .recorder_bytes = recorder::smallest_file,
            .rank = rank,
            .world_size = 3,
            .host = "a/b"};
  }
  std::unique_ptr<Timeline> recording(int rank) const {
    auto timeline = std::make_unique<Timeline>(options_of(rank));
    timeline->name_thread("training");
    for (int i = 0; i <= rank; ++i) timeline->span(Category::forward, "work", i, i + 1);
    return timeline;
  }
  void record(std::initializer_list<int> ranks) const {
    for (const int rank : ranks) recording(rank);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(run() / "recorder"))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  // The ranks of all recorders, and that each has the records that it should have.
  std::vector<int> ranks() const {
    std::vector<int> ranks;
    for (const auto& path : recorder_files(run())) {
      const RecorderFile file(path);
      file.verify();
      ranks.push_back(file.rank());
      EXPECT_EQ(file.records(0).size(), static_cast<std::size_t>(file.rank() + 1)) << path;
      EXPECT_EQ(rank_of_recorder(path), file.rank()) << path;
    }
    return ranks;
  }
  fs::path node_file() const {
    for (const auto& entry : fs::directory_iterator(run() / "recorder"))
      if (is_node_file(entry.path())) return entry.path();
    return {};
  }

  const TemporaryFolder folder_;
  const std::vector<int> all_{0, 1, 2};
};

TEST_F(NodeFile, HasWhatTheRankFilesHad) {
  record({0, 1, 2});
  EXPECT_TRUE(pack_node(run(), all_));
  EXPECT_THAT(names(), ElementsAre(AllOf(StartsWith("node-a_b-"), EndsWith(".ftl"))));
  EXPECT_EQ(ranks(), all_);
  EXPECT_EQ(recorder_files(node_file()), recorder_files(run()));
  EXPECT_EQ(readable_recorder(run(), 2), node_file() / "rank-0002.ftl");
  EXPECT_EQ(readable_recorder(run(), 3), std::nullopt);
  EXPECT_THROW(RecorderFile(node_file() / "rank-0003.ftl"), UserError);
  EXPECT_FALSE(pack_node(run(), all_)) << "there is nothing more to do";

  const TemporaryFolder folder;
  const SyntheticRun synthetic;
  for (int rank = 0; rank < synthetic.ranks; ++rank) synthetic.record(folder / "recorder", rank);
  merge_run(folder.path(), folder / "ranks.json.gz");
  ASSERT_TRUE(pack_node(folder.path(), all_));
  merge_run(folder.path(), folder / "node.json.gz");
  EXPECT_EQ(unzipped(folder / "node.json.gz"), unzipped(folder / "ranks.json.gz"));
}

// 128 nodes of 8 ranks: copies of one recorder with other headers.
TEST_F(NodeFile, LeavesAFilePerNodeOfALargeJob) {
  record({0});
  const auto file = all_bytes(recorder_file(run(), 0));
  for (int rank = 0; rank < 1024; ++rank) {
    auto copy = file;
    recorder::FixedHeader header;
    std::memcpy(&header, copy.data(), sizeof header);
    header.rank = rank;
    header.world_size = 1024;
    header.host = {'n', static_cast<char>('A' + rank / 8 / 16), static_cast<char>('a' + rank / 8 % 16)};
    header.crc = crc_of(header);
    std::memcpy(copy.data(), &header, sizeof header);
    put_bytes(recorder_file(run(), rank), copy);
  }
  pack_nodes(run());
  EXPECT_THAT(names(), AllOf(SizeIs(128), Each(StartsWith("node-n"))));
  const auto signs = read_signs(run());
  ASSERT_THAT(signs, SizeIs(1024));
  for (int rank = 0; rank < 1024; ++rank) EXPECT_EQ(signs[static_cast<std::size_t>(rank)].rank, rank);
}

// farandole run has started the ranks, and its users know the names of rank files.
TEST_F(NodeFile, IsMadeByReadersOfRunsWithoutALauncher) {
  record({0, 1, 2});
  fs::create_directory(run() / "launch");
  put_bytes(run() / "launch/job.json", "{}");
  EXPECT_TRUE(complete_run(run()));
  EXPECT_THAT(names(), SizeIs(3));
  fs::remove_all(run() / "launch");
  EXPECT_FALSE(complete_run(run())) << "the trace is there";
  EXPECT_THAT(names(), SizeIs(1));
  EXPECT_TRUE(has_whole_trace(run())) << "the node's file is as old as its parts";
}

TEST_F(NodeFile, TakesOnlyRanksThatHaveEnded) {
  record({0, 2});
  auto timeline = recording(1);
  EXPECT_FALSE(pack_node(run(), all_));
  EXPECT_THAT(names(), SizeIs(3)) << "the last rank has not ended";
  pack_nodes(run());
  EXPECT_THAT(names(), ElementsAre(StartsWith("node-"), "rank-0001.ftl"));
  EXPECT_EQ(ranks(), all_);
  EXPECT_FALSE(recorder_has_ended(recorder_file(run(), 1)));
  timeline.reset();
  EXPECT_TRUE(pack_node(run(), all_)) << "it joins the others";
  EXPECT_THAT(names(), SizeIs(1));
  EXPECT_EQ(ranks(), all_);
}

TEST_F(NodeFile, TakesRanksThatWereKilledHere) {
  record({1, 2});
  const pid_t child = ::fork();
  if (child == 0) {
    end_if_it_hangs(60);
    const auto timeline = recording(0);
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(recorder_has_ended(recorder_file(run(), 0)));
  EXPECT_TRUE(pack_node(run(), all_));
  EXPECT_THAT(names(), SizeIs(1));
  EXPECT_EQ(ranks(), all_);
  EXPECT_FALSE(RecorderFile(*readable_recorder(run(), 0)).closed());
  EXPECT_TRUE(RecorderFile(*readable_recorder(run(), 1)).closed());
}

// A file system could not tell from another host whether this rank lives.
TEST_F(NodeFile, LeavesUnclosedFilesOfOtherHosts) {
  record({0, 1, 2});
  auto bytes = all_bytes(recorder_file(run(), 1));
  recorder::Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  header.fixed.clock ^= 1;
  header.fixed.crc = crc_of(header.fixed);
  header.end_monotonic_ns = 0;
  std::memcpy(bytes.data(), &header, sizeof header);
  put_bytes(recorder_file(run(), 1), bytes);
  EXPECT_TRUE(pack_node(run(), all_));
  pack_nodes(run());
  EXPECT_THAT(names(), ElementsAre(StartsWith("node-"), "rank-0001.ftl"));
  EXPECT_EQ(ranks(), all_);
}

// The process that puts the files together can be killed before and after it publishes.
TEST_F(NodeFile, IsRepairedAfterAKill) {
  record({0, 1, 2});
  std::vector<std::string> rank_files;
  for (const int rank : all_) rank_files.push_back(all_bytes(recorder_file(run(), rank)));
  ASSERT_TRUE(pack_node(run(), all_));
  const auto packed = node_file();
  const auto whole = all_bytes(packed);
  fs::remove(packed);
  put_bytes(fs::path(packed).replace_extension(".part"), whole.substr(0, whole.size() / 2));
  for (const int rank : all_)
    put_bytes(recorder_file(run(), rank), rank_files[static_cast<std::size_t>(rank)]);
  EXPECT_EQ(ranks(), all_) << "half a file";
  pack_nodes(run());
  EXPECT_THAT(names(), SizeIs(1));
  EXPECT_TRUE(all_bytes(packed) == whole);
  for (const int rank : {0, 2})
    put_bytes(recorder_file(run(), rank), rank_files[static_cast<std::size_t>(rank)]);
  EXPECT_EQ(ranks(), all_) << "two files are not removed";
  EXPECT_TRUE(pack_node(run(), all_));
  EXPECT_THAT(names(), SizeIs(1));
  EXPECT_EQ(fs::file_size(packed), whole.size());
  EXPECT_EQ(ranks(), all_);
}

TEST_F(NodeFile, IsMadeOnceIfRanksEndTogether) {
  constexpr int rounds = 20, count = 6;
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::unique_ptr<Timeline>> timelines;
    std::vector<int> ranks_here;
    for (int rank = 0; rank < count; ++rank) {
      timelines.push_back(recording(rank));
      ranks_here.push_back(rank);
    }
    std::atomic<int> made{0}, ready{0};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < count; ++rank)
      threads.emplace_back([&, rank] {
        ++ready;
        while (ready < count) std::this_thread::yield();
        timelines[static_cast<std::size_t>(rank)].reset();
        if (pack_node(run(), ranks_here)) ++made;
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(made, 1);
    EXPECT_THAT(names(), SizeIs(1));
    EXPECT_EQ(ranks(), ranks_here);
    fs::remove_all(run() / "recorder");
  }
}

TEST_F(NodeFile, LosesOnlyWhatIsDamaged) {
  record({0, 1, 2});
  ASSERT_TRUE(pack_node(run(), all_));
  const auto file = node_file();
  const auto whole = all_bytes(file);
  const auto second = RecorderFile(file / "rank-0000.ftl").used().back().second / 4096 * 4096 + 4096;
  ASSERT_EQ(whole.substr(second, 8), "FARANDO1");

  auto bytes = whole;
  bytes[second] = 'x';
  put_bytes(file, bytes);
  auto opened = open_run(recorder_files(run()), {});
  EXPECT_EQ(opened.ranks.size(), 2U);
  ASSERT_THAT(opened.files[0].problems,
              ElementsAre(HasSubstr(std::to_string(second) + ".ftl, offset 0: this is not")));

  bytes = whole;
  bytes[second + offsetof(recorder::FixedHeader, host)] ^= 1;
  put_bytes(file, bytes);
  opened = open_run(recorder_files(run()), {});
  EXPECT_EQ(opened.ranks.size(), 3U) << "its records can be read";
  EXPECT_FALSE(opened.sound());

  put_bytes(file, whole.substr(0, second + 30'000));
  opened = open_run(recorder_files(run()), {});
  EXPECT_EQ(opened.missing, "there is no flight recorder of rank 2 (the run has 3 ranks)");

  put_bytes(file, "");
  EXPECT_THROW(open_run(recorder_files(run()), {}), CorruptInput);

  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    put_bytes(file, mutated(whole, random, 8, 9'000));
    try {
      merge_run(run());
    } catch (const CorruptInput&) {
    } catch (const UserError&) {
    }
    pack_nodes(run());
  }
}

}  // namespace
}  // namespace farandole

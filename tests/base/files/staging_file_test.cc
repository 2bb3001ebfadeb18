#include "farandole/base/files/staging_file.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <random>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "error_message.h"
#include "lane.h"

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

class NodeFile : public testing::Test {
 protected:
  NodeFile() { fs::create_directories(node_); }

  fs::path leave(const std::string& contents) {
    const auto file = stage_in(destination_, node_);
    write(file, contents);
    return file;
  }
  static void write(const fs::path& file, const std::string& contents) {
    std::ofstream(file, std::ios::binary) << contents;
  }
  static std::string read(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static long files_in(const fs::path& folder) { return std::distance(fs::directory_iterator(folder), {}); }
  std::vector<fs::path> destinations() const {
    std::error_code failure;
    auto found = staged_files_in(folder_.path(), ".ftl", failure);
    EXPECT_FALSE(failure) << failure.message();
    return found;
  }
  bool has_link() const { return fs::is_symlink(node_link(destination_)); }
  // Forks a process that ends with what `work` returns, or with 9 if it throws.
  template <class Work>
  static pid_t start(const Work& work) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    try {
      ::_exit(work());
    } catch (...) {
      ::_exit(9);
    }
  }
  static int status_of(pid_t child) {
    int status = -1;
    ::waitpid(child, &status, 0);
    return status;
  }

  const TemporaryFolder folder_;
  const fs::path node_ = folder_ / "node";
  const fs::path destination_ = folder_ / "rank-0003.ftl";
};

TEST_F(NodeFile, IsReadInPlaceAndStagedOut) {
  const auto file = leave("first");
  EXPECT_EQ(file.parent_path(), node_);
  EXPECT_EQ(file.extension(), ".ftl");
  EXPECT_TRUE(has_link());
  EXPECT_EQ(readable_at(destination_), file);
  EXPECT_THAT(destinations(), testing::ElementsAre(destination_));
  EXPECT_TRUE(copy_out(destination_));
  EXPECT_EQ(read(destination_), "first");
  write(file, "second");
  EXPECT_EQ(read(readable_at(destination_)), "second");
  EXPECT_THAT(destinations(), testing::ElementsAre(destination_));
  EXPECT_TRUE(stage_out(destination_));
  EXPECT_EQ(read(destination_), "second");
  EXPECT_FALSE(has_link());
  EXPECT_EQ(files_in(node_), 0);
  EXPECT_EQ(files_in(folder_.path()), 2);
  EXPECT_EQ(readable_at(destination_), destination_);
  EXPECT_FALSE(stage_out(destination_));
  EXPECT_FALSE(copy_out(destination_));
  EXPECT_EQ(read(destination_), "second");
}

TEST_F(NodeFile, EmptyBlocksTakeNoRoom) {
  std::string contents(20 << 20, '\0');
  contents[3] = 'a';
  contents[(10 << 20) + 5] = 'b';
  contents.push_back('c');
  for (const auto& text : {contents, std::string(3 << 20, '\0'), std::string(), std::string("\0\0a", 3)}) {
    leave(text);
    EXPECT_TRUE(stage_out(destination_));
    EXPECT_TRUE(read(destination_) == text);
  }
  leave(contents);
  EXPECT_TRUE(stage_out(destination_));
  struct stat status {};
  ASSERT_EQ(::stat(destination_.c_str(), &status), 0);
  EXPECT_LE(status.st_blocks * 512, 4 << 20);
}

TEST_F(NodeFile, OnAnotherNodeOnlyTheCopyIsThere) {
  const auto file = leave("one");
  copy_out(destination_);
  fs::remove(file);  // as if the link led to a folder of another node
  EXPECT_EQ(readable_at(destination_), destination_);
  EXPECT_FALSE(stage_out(destination_));
  EXPECT_EQ(read(destination_), "one");
  EXPECT_TRUE(has_link());
  fs::remove(destination_);
  EXPECT_THAT(destinations(), testing::ElementsAre(destination_)) << "the link names it";
}

TEST_F(NodeFile, WhatAnEarlierRunLeftGoes) {
  const auto first = leave("one");
  copy_out(destination_);
  const auto second = leave("two");
  EXPECT_NE(first, second);
  EXPECT_FALSE(fs::exists(first));
  EXPECT_FALSE(fs::exists(destination_));
  EXPECT_EQ(read(readable_at(destination_)), "two");
  forget_staged(destination_);
  EXPECT_EQ(files_in(node_), 0);
  EXPECT_EQ(files_in(folder_.path()), 1);
}

TEST_F(NodeFile, SaysWhyAFolderCannotBeRead) {
  std::error_code failure;
  EXPECT_THAT(staged_files_in(folder_ / "missing", ".ftl", failure), testing::IsEmpty());
  EXPECT_EQ(failure, std::errc::no_such_file_or_directory);
  write(folder_ / "file", "x");
  EXPECT_THAT(staged_files_in(folder_ / "file", ".ftl", failure), testing::IsEmpty());
  EXPECT_EQ(failure, std::errc::not_a_directory);
  fs::permissions(folder_.path(), fs::perms::none);
  EXPECT_EQ(status_of(start([&] {
              if (::geteuid() == 0 && ::setuid(65534) != 0) return 2;
              staged_files_in(folder_.path(), ".ftl", failure);
              return failure == std::errc::permission_denied ? 0 : 1;
            })),
            0);
  fs::permissions(folder_.path(), fs::perms::owner_all);
  EXPECT_THAT(staged_files_in(folder_.path(), ".ftl", failure), testing::IsEmpty());
  EXPECT_FALSE(failure);
}

TEST_F(NodeFile, TakesNoOtherFileForItsOwn) {
  const auto other = node_ / "thesis.tex", part = fs::path(destination_).replace_extension(".part");
  write(other, "precious");
  fs::create_symlink(other, node_link(destination_));
  EXPECT_FALSE(stage_out(destination_));
  fs::create_symlink(other, part);
  leave("x");
  fs::create_symlink(other, part);  // The unfinished copy replaces it.
  EXPECT_TRUE(stage_out(destination_));
  EXPECT_EQ(read(other), "precious");
  EXPECT_EQ(read(destination_), "x");
  EXPECT_THROW(stage_in(folder_ / "missing/rank-0000.ftl", node_), Error);
}

TEST_F(NodeFile, ALinkThatWasNotMadeHereRemovesNothing) {
  const auto other = node_ / "farandole-rank-0003-notes.ftl";
  write(other, "precious");
  fs::create_symlink(other, node_link(destination_));
  const auto original = leave("original");
  EXPECT_EQ(read(other), "precious");

  const auto copy = folder_ / "copy" / destination_.filename();
  fs::create_directory(copy.parent_path());
  const auto copy_link = [&] { fs::copy_symlink(node_link(destination_), node_link(copy)); };
  copy_link();
  EXPECT_TRUE(stage_out(copy));
  EXPECT_EQ(read(copy), "original");
  copy_link();
  forget_staged(copy);
  EXPECT_EQ(files_in(copy.parent_path()), 0);
  copy_link();
  EXPECT_NE(stage_in(copy, node_), original);
  EXPECT_EQ(read(original), "original");
  EXPECT_TRUE(stage_out(destination_));
  EXPECT_EQ(read(destination_), "original");
}

// A file stays on the node if its destination has no space left.
TEST_F(NodeFile, StaysIfTheDestinationIsFull) {
  const auto file = leave(std::string(1 << 20, 'x'));
  EXPECT_EQ(status_of(start([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit small{1000, 1000};
              ::setrlimit(RLIMIT_FSIZE, &small);
              const auto message = message_of<Error>([&] { stage_out(destination_); });
              return message.find("write") != std::string::npos ? 0 : 1;
            })),
            0);
  EXPECT_TRUE(fs::exists(file) && has_link());
  EXPECT_EQ(files_in(folder_.path()), 2);  // no temporary file
}

// A launcher ends ranks and their supervisors by SIGKILL at any point of their work.
TEST_F(NodeFile, ArrivesThoughProcessesAreKilled) {
  std::mt19937 random(seed(1));
  const std::string contents(1 << 20, 'x');
  for (int round = 0; round < rounds(12, 300); ++round) {
    leave(contents);
    for (int bringer = 0; bringer < 3; ++bringer) {
      const pid_t child = start([&] { return stage_out(destination_) ? 0 : 1; });
      ::usleep(random() % 3000);
      ::kill(child, SIGKILL);
      status_of(child);
    }
    stage_out(destination_);
    ASSERT_TRUE(read(destination_) == contents);
    ASSERT_EQ(files_in(node_), 0) << "round " << round;
    ASSERT_EQ(files_in(folder_.path()), 2);
  }
}

TEST_F(NodeFile, SeveralBringersKeepTheLastState) {
  for (int round = 0; round < rounds(15, 50); ++round) {
    const auto file = leave("first");
    std::vector<pid_t> copiers(3);
    for (auto& child : copiers)
      child = start([&] {
        while (copy_out(destination_)) continue;
        return 0;
      });
    write(file, "last");
    EXPECT_TRUE(stage_out(destination_));
    for (const pid_t child : copiers) EXPECT_EQ(status_of(child), 0);
    ASSERT_EQ(read(destination_), "last");
    ASSERT_EQ(files_in(folder_.path()), 2);
  }
}

}  // namespace
}  // namespace farandole

#include "farandole/base/run/run_files.h"

#include <chrono>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

struct Lines : testing::Test {
  void write(const std::string& text) const { std::ofstream(file, std::ios::binary) << text; }
  std::vector<std::string> read(std::uint64_t last_bytes) const {
    std::vector<std::string> lines;
    read_lines(file, last_bytes, [&](std::string_view line) { lines.emplace_back(line); });
    return lines;
  }
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "metrics.jsonl";
  static constexpr std::uint64_t all = -1;
};

TEST_F(Lines, AreWholeAcrossBlocks) {
  EXPECT_TRUE(read(all).empty());
  std::string text;
  std::vector<std::string> expected;
  for (std::size_t i = 0; i < 400; ++i) {
    expected.push_back(std::string(i * 7 % 1500, static_cast<char>('a' + i % 26)));
    text += expected.back() + "\n";
  }
  ASSERT_GT(text.size(), std::size_t{4} << 16);
  write(text + "cut off");
  EXPECT_TRUE(read(all) == expected);
  const auto last = read(2000 + std::string_view("cut off").size());
  EXPECT_TRUE(last.back() == expected.back());
  std::size_t bytes = 0;
  for (const auto& line : last) bytes += line.size() + 1;
  EXPECT_EQ(bytes, 2000u);
}

TEST_F(Lines, AreLeftOutIfTheyAreTooLong) {
  const std::string longest(std::size_t{16} << 20, 'x');
  write("first\n" + longest + longest + "\nlast\n");
  EXPECT_EQ(read(all), (std::vector<std::string>{"first", "last"}));
}

TEST_F(Lines, OfAFifoAreRefused) {
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_THROW(read(all), CorruptInput);
  EXPECT_TRUE(last_metrics(file).empty());
}

TEST_F(Lines, TellTheLastStep) {
  EXPECT_FALSE(last_logged_step(file));
  write("{\"step\":1}\n{\"step\":\"x\"}\n{\"loss\":1}\n[1]\nx\n{\"step\":2");
  EXPECT_EQ(last_logged_step(file), 1);
  write("{\"step\":1}\n{\"step\":3,\"host\":\"" + std::string(100'000, 'x') + "\"}\n");
  EXPECT_EQ(last_logged_step(file), 3) << "a line of many ranks";
}

TEST(Checkpoints, AreSortedByTheirSteps) {
  const TemporaryFolder run;
  EXPECT_TRUE(newest_checkpoint(run.path()).empty());
  const auto folder = run / "checkpoints";
  std::filesystem::create_directory(folder);
  for (const char* name : {"step-99999999.h5", "step-100000000.h5", "step-00000007.h5", "step-x.h5",
                           "step-.h5", "step--1.h5", "best.h5", ".step-999999999.h5.host.1.tmp"})
    std::ofstream(folder / name) << "x";
  EXPECT_EQ(newest_checkpoint(run.path()), folder / "step-100000000.h5");
  EXPECT_EQ(step_of_checkpoint(newest_checkpoint(run.path())), 100'000'000);
  EXPECT_EQ(checkpoint_files(folder).size(), 3u);
  EXPECT_EQ(checkpoint_files(folder).back(), folder / "step-00000007.h5");
}

// A file system that fails for a moment must not look like a run without checkpoints.
TEST(Checkpoints, AFolderThatCannotBeReadIsNotEmpty) {
  const TemporaryFolder run;
  EXPECT_TRUE(checkpoint_files(run / "checkpoints").empty());
  EXPECT_TRUE(checkpoint_files(run / "none/checkpoints").empty());
  std::filesystem::create_symlink("checkpoints", run / "checkpoints");  // leads to itself
  EXPECT_THROW(checkpoint_files(run / "checkpoints"), Error);
  EXPECT_TRUE(newest_checkpoint(run.path()).empty());
}

TEST(Checkpoints, OfAProgramAreRecognizedByTheirNames) {
  const TemporaryFolder run;
  for (const char* folder : {"recorder", "checkpoints", "mine/deeper/deepest"})
    std::filesystem::create_directories(run / folder);
  for (const char* file :
       {"recorder/a.pt", "checkpoints/step-00000007.h5", "mine/deeper/deepest/b.pt", "log.txt", ".c.pt"})
    std::ofstream(run / file) << "x";
  EXPECT_TRUE(newest_checkpoint_of_program(run.path()).empty());
  EXPECT_TRUE(newest_checkpoint_of_program(run / "absent").empty());
  std::ofstream(run / "mine/model.pt") << "x";
  EXPECT_EQ(newest_checkpoint_of_program(run.path()), run / "mine/model.pt");
  std::ofstream(run / "last.ckpt") << "x";
  std::filesystem::last_write_time(
      run / "last.ckpt", std::filesystem::last_write_time(run / "mine/model.pt") + std::chrono::seconds(1));
  EXPECT_EQ(newest_checkpoint_of_program(run.path()), run / "last.ckpt");
}

}  // namespace
}  // namespace farandole

#include "farandole/base/run/run_files.h"

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

}  // namespace
}  // namespace farandole

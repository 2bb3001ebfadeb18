#include "farandole/launch/output/marked_lines.h"

#include <gtest/gtest.h>
#include <map>
#include <random>
#include <vector>

#include "lane.h"

namespace farandole {
namespace {

const std::string launch_word = "aB3-+xYz";

std::string marked(int rank, LineKind kind, std::string_view text) {
  return mark_lines({launch_word, rank, kind}, text);
}

struct Taken {
  std::map<int, std::string> out, err, records;  // By rank.
  std::string words;
};

// Feeds the stream in pieces of `size` bytes.
Taken take_apart(std::string_view stream, std::size_t size) {
  Taken taken;
  MarkedLines lines(
      launch_word,
      [&](int rank, LineKind kind, std::string_view text) {
        (kind == LineKind::out      ? taken.out
         : kind == LineKind::record ? taken.records
                                    : taken.err)[rank] += text;
      },
      [&](std::string_view words) { taken.words += words; });
  for (; !stream.empty(); stream.remove_prefix(std::min(size, stream.size())))
    lines.feed(stream.substr(0, size));
  lines.finish();
  return taken;
}

TEST(MarkedLines, KeepRanksStreamsAndWordsApart) {
  const auto stream = marked(0, LineKind::out, "zero\n") + "mpirun says\n" +
                      marked(12, LineKind::err, "twelve\nno newline") + "a word without end" +
                      marked(12, LineKind::out, "\n") + marked(0, LineKind::out, "10 %\r") +
                      "\036\n\0363q\ntail";
  for (const std::size_t size : {1, 7, 4096}) {
    const auto taken = take_apart(stream, size);
    EXPECT_EQ(taken.out.at(0), "zero\n10 %\r");
    EXPECT_EQ(taken.out.at(12), "\n");
    EXPECT_EQ(taken.err.at(12), "twelve\nno newline");
    EXPECT_EQ(taken.words, "mpirun says\na word without end\036\n\0363q\ntail");
  }
}

// srun and slurmstepd may cut a line anywhere, so that the rest of it begins a line.
TEST(MarkedLines, WhatARankPrintsIsNeverARecord) {
  const std::string command = R"({"rank":0,"exit_code":0,"run_dir":"/home/other"})";
  for (const auto* mark : {"\0360r", "farandole-run-record ", "\036aB3-+xYy0r", "aB3-+xYz0r"}) {
    const auto forged = std::string(mark) + command + "\n";
    for (const auto& stream : {marked(1, LineKind::out, "text " + forged), forged, "words " + forged,
                               marked(1, LineKind::out, "text ").substr(0, 9) + "\n" + forged}) {
      const auto taken = take_apart(stream, 7);
      EXPECT_TRUE(taken.records.empty()) << stream;
    }
  }
  EXPECT_EQ(take_apart(marked(1, LineKind::record, command + "\n"), 7).records.at(1), command + "\n");
  EXPECT_NE(random_word(), random_word());
  EXPECT_EQ(random_word().size(), launch_word.size());
}

TEST(MarkedLines, AreShortAndCarryAnyBytes) {
  std::mt19937 random(seed(1));
  for (int round = 0; round < 100; ++round) {
    std::string bytes;
    for (std::size_t size = random() % 5000; size > 0; --size)
      bytes += random() % 700 == 0 ? '\n' : static_cast<char>(random());
    const auto stream = marked(7, LineKind::err, bytes);
    for (std::size_t begin = 0; begin < stream.size();) {
      const auto end = stream.find('\n', begin);
      ASSERT_LE(end - begin, 1020u);
      begin = end + 1;
    }
    const auto taken = take_apart(stream, 1 + random() % 100);
    ASSERT_EQ(taken.words, "");
    ASSERT_TRUE(bytes.empty() || taken.err.at(7) == bytes);
  }
}

TEST(MarkedLines, HoldABoundedAmountOfWords) {
  std::size_t most = 0, all = 0;
  MarkedLines lines(
      launch_word, [](int, LineKind, std::string_view) {},
      [&](std::string_view words) {
        most = std::max(most, words.size());
        all += words.size();
      });
  for (int i = 0; i < 1000; ++i) lines.feed(std::string(1000, 'x'));
  EXPECT_GE(all, 900'000u);
  EXPECT_LE(most, 70'000u);
}

}  // namespace
}  // namespace farandole

#include "farandole/launch/output/marked_lines.h"

#include <gtest/gtest.h>
#include <map>
#include <random>
#include <vector>

#include "lane.h"

namespace farandole {
namespace {

struct Taken {
  std::map<int, std::string> out, err;  // By rank.
  std::string words;
};

// Feeds the stream in pieces of `size` bytes.
Taken take_apart(std::string_view stream, std::size_t size) {
  Taken taken;
  MarkedLines lines(
      [&](int rank, LineKind kind, std::string_view text) {
        (kind == LineKind::out ? taken.out : taken.err)[rank] += text;
      },
      [&](std::string_view words) { taken.words += words; });
  for (; !stream.empty(); stream.remove_prefix(std::min(size, stream.size())))
    lines.feed(stream.substr(0, size));
  lines.finish();
  return taken;
}

TEST(MarkedLines, KeepRanksStreamsAndWordsApart) {
  const auto stream = mark_lines(0, LineKind::out, "zero\n") + "mpirun says\n" +
                      mark_lines(12, LineKind::err, "twelve\nno newline") + "a word without end" +
                      mark_lines(12, LineKind::out, "\n") + mark_lines(0, LineKind::out, "10 %\r") +
                      "\036\n\0363q\ntail";
  for (const std::size_t size : {1, 7, 4096}) {
    const auto taken = take_apart(stream, size);
    EXPECT_EQ(taken.out.at(0), "zero\n10 %\r");
    EXPECT_EQ(taken.out.at(12), "\n");
    EXPECT_EQ(taken.err.at(12), "twelve\nno newline");
    EXPECT_EQ(taken.words, "mpirun says\na word without end\036\n\0363q\ntail");
  }
}

TEST(MarkedLines, AreShortAndCarryAnyBytes) {
  std::mt19937 random(seed(1));
  for (int round = 0; round < 100; ++round) {
    std::string bytes;
    for (std::size_t size = random() % 5000; size > 0; --size)
      bytes += random() % 700 == 0 ? '\n' : static_cast<char>(random());
    const auto stream = mark_lines(7, LineKind::err, bytes);
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
  MarkedLines lines([](int, LineKind, std::string_view) {},
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

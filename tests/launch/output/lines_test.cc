#include "farandole/launch/output/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "lane.h"

namespace farandole {
namespace {

using testing::ElementsAre;

std::vector<std::string> split(const std::vector<std::string>& feeds, std::size_t max_bytes = 65536) {
  std::vector<std::string> pieces;
  LineSplitter splitter([&](std::string_view piece) { pieces.emplace_back(piece); }, max_bytes);
  for (const auto& feed : feeds) splitter.feed(feed);
  splitter.finish();
  return pieces;
}

TEST(LineSplitter, JoinsAndCutsAtNewlines) {
  EXPECT_THAT(split({"a", "b\nc", "\n", "\n", "tail"}), ElementsAre("ab\n", "c\n", "\n", "tail"));
  EXPECT_THAT(split({}), ElementsAre());
  EXPECT_THAT(split({""}), ElementsAre());
  EXPECT_THAT(split({"a\r\nb\r\n"}), ElementsAre("a\r\n", "b\r\n"));
}

TEST(LineSplitter, PassesProgressBeforeItsNewline) {
  std::vector<std::string> pieces;
  LineSplitter splitter([&](std::string_view piece) { pieces.emplace_back(piece); });
  splitter.feed("10 %\r");
  EXPECT_THAT(pieces, ElementsAre("10 %\r"));
  splitter.feed("\r20 %");
  EXPECT_THAT(pieces, ElementsAre("10 %\r", "\r", "20 %"));
  splitter.feed("\n");
  splitter.feed("next");
  EXPECT_EQ(pieces.size(), 4u) << "after the newline, lines are whole again";
  splitter.finish();
  EXPECT_EQ(pieces.back(), "next");
}

TEST(LineSplitter, LongLinesComeInBoundedPieces) {
  EXPECT_THAT(split({"abcdefg\nhi\n"}, 3), ElementsAre("abc", "def", "g\n", "hi\n"));
  for (const auto& piece : split({std::string(1'000'000, 'x')})) EXPECT_LE(piece.size(), 65536u);
}

TEST(LineSplitter, LosesAndInventsNothingOfAnyBytes) {
  std::mt19937 random(seed(1));
  for (int round = 0; round < 300; ++round) {
    std::string all, joined;
    const std::size_t max_bytes = 1 + random() % 40;
    LineSplitter splitter(
        [&](std::string_view piece) {
          EXPECT_LE(piece.size(), max_bytes);
          EXPECT_FALSE(piece.empty());
          joined += piece;
        },
        max_bytes);
    for (int feeds = 0; feeds < 20; ++feeds) {
      std::string bytes;
      for (std::size_t size = random() % 30; size > 0; --size)
        bytes +=
            "\r\n\0\xff"
            "ab"[random() % 6];
      all += bytes;
      splitter.feed(bytes);
    }
    splitter.finish();
    ASSERT_EQ(joined, all);
  }
}

std::string format(const std::vector<std::string>& feeds, LineFormatter::Redraws redraws) {
  std::string text;
  LineFormatter formatter([] { return "> "; }, redraws);
  LineSplitter splitter([&](std::string_view piece) { text += formatter.format(piece); });
  for (const auto& feed : feeds) splitter.feed(feed);
  splitter.finish();
  return text + formatter.finish();
}

TEST(LineFormatter, MarksEachLineAndEndsTheLast) {
  for (const auto redraws : {LineFormatter::Redraws::each, LineFormatter::Redraws::last}) {
    EXPECT_EQ(format({"a\n\nb\r\nc"}, redraws), "> a\n> \n> b\n> c\n");
    EXPECT_EQ(format({"a\r", "\n", "b\n"}, redraws), "> a\n> b\n") << "CR LF in two reads";
    EXPECT_EQ(format({}, redraws), "");
  }
}

TEST(LineFormatter, ShowsEachOrOnlyTheLastState) {
  const std::vector<std::string> bar = {"1 %\r", "2 %\r3 %", "\r4 %", "\ndone\n"};
  EXPECT_EQ(format(bar, LineFormatter::Redraws::each), "> 1 %\n> 2 %\n> 3 %\n> 4 %\n> done\n");
  EXPECT_EQ(format(bar, LineFormatter::Redraws::last), "> 4 %\n> done\n");
  EXPECT_EQ(format({"1 %\r2 %\r"}, LineFormatter::Redraws::last), "> 2 %\n") << "ended in mid-bar";
}

TEST(LineFormatter, TimeOfDayHasMilliseconds) {
  EXPECT_THAT(time_of_day(), testing::MatchesRegex("[0-2][0-9]:[0-5][0-9]:[0-6][0-9].[0-9][0-9][0-9]"));
}

}  // namespace
}  // namespace farandole

#include "farandole/base/text/phrases.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(Phrases, Ranks) {
  EXPECT_EQ(describe_ranks(std::vector{3}), "rank 3");
  EXPECT_EQ(describe_ranks(std::vector{0, 1}), "ranks 0, 1");
  EXPECT_EQ(describe_ranks(std::vector{0, 1, 2, 5, 7, 8, 9}), "ranks 0-2, 5, 7-9");
}

TEST(Phrases, PrintableTextIsUtf8WithoutControlCharacters) {
  EXPECT_EQ(printable("a é € 😀"), "a é € 😀");
  EXPECT_EQ(printable("a\x1b[2J\x7f\n"), "a?[2J??");
  EXPECT_EQ(printable("\xC2\x9B"), "?");  // U+009B begins control sequences.
  EXPECT_EQ(printable("\xC0\x80 \xE0\x9F\x80 \xF0\x8F\x80\x80"), "? ? ?");  // longer than needed
  EXPECT_EQ(printable("\xED\xA0\x80 \xF4\x90\x80\x80 \xF8\x88\x80\x80\x80"), "? ? ?");
  EXPECT_EQ(printable("\xE2\x82"), "?");  // cut off
}

TEST(Phrases, PrintableLinesStayLines) {
  EXPECT_EQ(printable_lines("a\n\n b\x1b[1m\r\n"), "a\n\n b?[1m?\n");
  EXPECT_EQ(printable_lines(""), "");
}

TEST(Phrases, TextsAreSplitAtCommas) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(split_at_commas(""), Parts({""}));
  EXPECT_EQ(split_at_commas("gpt"), Parts({"gpt"}));
  EXPECT_EQ(split_at_commas("a,bc,,d,"), Parts({"a", "bc", "", "d", ""}));
}

}  // namespace
}  // namespace farandole

#include "farandole/base/text/parse_number.h"

#include <cstdint>
#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(ParseNumber, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(parse_number<int>("42"), 42);
  EXPECT_EQ(parse_number<int>("-7"), -7);
  EXPECT_EQ(parse_number<double>("2.5e-3"), 2.5e-3);
  for (const auto* text : {"", " 42", "42 ", "+42", "42x", "0x2a", "4 2", "forty"})
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << '"' << text << '"';
  for (const auto* text : {"", ".", "1.5.2", "1,5", "1e"})
    EXPECT_EQ(parse_number<double>(text), std::nullopt) << '"' << text << '"';
}

TEST(ParseNumber, RefusesWhatDoesNotFit) {
  EXPECT_EQ(parse_number<std::int64_t>("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_number<std::int64_t>("9223372036854775808"), std::nullopt);
  EXPECT_EQ(parse_number<int>("2147483648"), std::nullopt);
  EXPECT_EQ(parse_number<unsigned>("-1"), std::nullopt);
  EXPECT_EQ(parse_number<double>("1e999"), std::nullopt);
}

TEST(Duration, IsANumberWithAUnit) {
  EXPECT_EQ(parse_duration("90"), 90);
  EXPECT_EQ(parse_duration("90s"), 90);
  EXPECT_EQ(parse_duration("1.5min"), 90);
  EXPECT_EQ(parse_duration("2h"), 7200);
  EXPECT_EQ(parse_duration("0"), 0);
  for (const auto* text :
       {"", "s", "min", "-1", "-1s", "1 s", "1m", "1sec", "nan", "inf", "infh", "1e9h", "s1"})
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
}

}  // namespace
}  // namespace farandole

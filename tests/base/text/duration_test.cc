#include <gtest/gtest.h>

#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

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

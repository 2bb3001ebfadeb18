#include "farandole/base/text/json.h"

#include <gtest/gtest.h>

namespace farandole {
namespace {

TEST(Json, MembersKeepTheirOrderAndAreWrittenInOneLineOrIndented) {
  const auto json = parse_json(R"( {"b": [1, 2.5], "a": null} )");
  EXPECT_EQ(json_text(json), R"({"b":[1,2.5],"a":null})");
  EXPECT_EQ(json_text(json, 1), "{\n \"b\": [\n  1,\n  2.5\n ],\n \"a\": null\n}");
}

TEST(Json, TextThatIsNotJsonIsRefusedOrDiscarded) {
  for (const auto* text : {"", "{", "nan", "[1,]", "{} {}"}) {
    EXPECT_THROW(parse_json(text), Json::exception) << text;
    EXPECT_TRUE(try_parse_json(text).is_discarded()) << text;
  }
  EXPECT_EQ(try_parse_json("[]"), Json::array());
}

TEST(Json, ADocumentOfTooManyLevelsIsRefusedBeforeItTakesTheStack) {
  const auto nested = [](std::size_t levels) {
    return R"({"a":"]]\\\"[","b":)" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  EXPECT_EQ(json_text(parse_json(nested(512))), nested(512));
  for (const std::size_t levels : {513, 70'000, 1'000'000}) {
    EXPECT_THROW(parse_json(nested(levels)), Json::exception);
    EXPECT_TRUE(try_parse_json(nested(levels)).is_discarded());
    EXPECT_TRUE(try_parse_json(std::string(levels, '[')).is_discarded());
  }
}

TEST(Json, TextsAreUtf8OrAscii) {
  EXPECT_EQ(json_text("é\n"), R"("é\n")");
  EXPECT_EQ(ascii_json_text("é"), R"("\u00e9")");
  EXPECT_EQ(json_text("a\xFF"), "\"a\uFFFD\"");
  EXPECT_EQ(ascii_json_text("a\xFF"), R"("a\ufffd")");
  EXPECT_EQ(exact_json_text("é"), R"("é")");
  EXPECT_THROW(exact_json_text("a\xFF"), Json::exception);
}

TEST(Json, CborKeepsAllBytes) {
  const Json json = {{"name", "node \xff"}, {"numbers", {1, -2, 0.5}}};
  auto bytes = cbor_of(json);
  EXPECT_EQ(parse_cbor(bytes), json);
  bytes.pop_back();
  EXPECT_THROW(parse_cbor(bytes), Json::exception);
}

}  // namespace
}  // namespace farandole

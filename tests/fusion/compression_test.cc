#include "farandole/fusion/compression.h"

#include <gtest/gtest.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

TEST(Compression, WhatIsDescribedIsParsed) {
  for (const auto* text : {"none", "float16", "bfloat16", "bfloat16:between-nodes"})
    EXPECT_EQ(describe(parse_compression(text)), text);
}

TEST(Compression, TheRestIsRefused) {
  for (const auto* text : {"", "fp16", "none:1", "float16:2", "float16:between-nodes",
                           "bfloat16:", "bfloat16:between-node", ":", "None"})
    EXPECT_THROW(parse_compression(text), UserError) << text;
}

TEST(Compression, WhatNoLongerExistsHasAReplacement) {
  for (const auto* text : {"powersgd", "powersgd:4", "topk:0.01"}) {
    try {
      parse_compression(text);
      FAIL() << text;
    } catch (const UserError& error) {
      EXPECT_EQ(
          std::string(error.what()),
          "compression '" + std::string(text) +
              "' no longer exists; use bfloat16, bfloat16:between-nodes, or --synchronize parameters:K");
    }
  }
}

}  // namespace
}  // namespace farandole

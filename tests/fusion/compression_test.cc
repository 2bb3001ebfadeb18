#include "farandole/fusion/compression.h"

#include <gtest/gtest.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

TEST(Compression, WhatIsDescribedIsParsed) {
  for (const auto* text : {"none", "float16", "bfloat16", "bfloat16:between-nodes", "powersgd:1",
                           "powersgd:32", "topk:0.01", "topk:1"})
    EXPECT_EQ(describe(parse_compression(text)), text);
  EXPECT_EQ(describe(parse_compression("powersgd")), "powersgd:4");
  EXPECT_EQ(describe(parse_compression("topk")), "topk:0.01");
  EXPECT_EQ(parse_compression("topk:0.25").fraction, 0.25);
}

TEST(Compression, TheRestIsRefused) {
  for (const auto* text :
       {"", "fp16", "none:1", "float16:2", "float16:between-nodes", "bfloat16:", "bfloat16:between-node",
        "powersgd:", "powersgd:0", "powersgd:-1", "powersgd:2.5", "powersgd:4x", "topk:0", "topk:1.1",
        "topk:nan", "topk:-0.1", "topk:", ":", "None"})
    EXPECT_THROW(parse_compression(text), UserError) << text;
}

}  // namespace
}  // namespace farandole

// The contents of a gzip file.
#pragma once

#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <zlib.h>

namespace farandole {

inline std::string unzipped(const std::filesystem::path& path) {
  gzFile file = ::gzopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr);
  std::string text;
  char block[1 << 16];
  int count = 0;
  while ((count = ::gzread(file, block, sizeof block)) > 0)
    text.append(block, static_cast<std::size_t>(count));
  EXPECT_EQ(count, 0);
  EXPECT_EQ(::gzclose(file), Z_OK);  // checks length and CRC
  return text;
}

}  // namespace farandole

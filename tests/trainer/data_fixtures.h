// Shared by the tests of data: small IDX files, gzip, bytes of files, and the path of real data.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include <zlib.h>

#include "error_message.h"

#include "farandole/base/error.h"

namespace farandole {

inline std::string big_endian(std::uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(number >> shift));
  return bytes;
}

// Pixel i of all pixels has the value i mod 251.
inline std::string idx_images(std::uint32_t count, std::uint32_t rows, std::uint32_t columns) {
  auto bytes = big_endian(2051) + big_endian(count) + big_endian(rows) + big_endian(columns);
  for (std::uint32_t i = 0; i < count * rows * columns; ++i) bytes.push_back(static_cast<char>(i % 251));
  return bytes;
}

// Label i is i mod 10.
inline std::string idx_labels(std::uint32_t count) {
  auto bytes = big_endian(2049) + big_endian(count);
  for (std::uint32_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(i % 10));
  return bytes;
}

// A new file is written, because some file systems flush a file that is truncated and written again.
inline void write_bytes(const std::filesystem::path& file, std::string_view bytes) {
  std::filesystem::remove(file);
  std::ofstream(file, std::ios::binary) << bytes;
}

inline std::string read_bytes(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_gzip(const std::filesystem::path& file, std::string_view bytes) {
  gzFile gz = gzopen(file.c_str(), "wb");
  gzwrite(gz, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(gz);
}

// nullopt: FARANDOLE_TEST_DATA is not set, or does not have `name`.
inline std::optional<std::filesystem::path> test_data(const std::string& name) {
  const char* folder = std::getenv("FARANDOLE_TEST_DATA");
  if (folder == nullptr || *folder == '\0' ||
      !std::filesystem::exists(std::filesystem::path(folder) / name)) {
    return std::nullopt;
  }
  return std::filesystem::path(folder) / name;
}

}  // namespace farandole

// The first statement of a test on real data.
#define REAL_DATA_OR_SKIP(variable, name)                                                      \
  const auto variable##_found = farandole::test_data(name);                                    \
  if (!variable##_found) GTEST_SKIP() << "FARANDOLE_TEST_DATA names no folder that has " name; \
  const std::filesystem::path& variable = *variable##_found

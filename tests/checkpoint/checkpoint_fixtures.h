// Shared by the tests of checkpoints: a temporary folder, random arrays, and bytes of files.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <stdlib.h>
#include <string>
#include <vector>

#include "farandole/base/files/temporary_folder.h"
#include "farandole/checkpoint/snapshot.h"

namespace farandole {

inline Array random_array(std::string path, DType dtype, std::vector<std::int64_t> shape,
                          std::mt19937_64& random) {
  Array array{std::move(path), dtype, std::move(shape), {}};
  array.bytes.resize(array.count() * size_of(dtype));
  for (auto& byte : array.bytes)
    byte = static_cast<std::byte>(dtype == DType::boolean ? random() & 1 : random());
  const bool floats = dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32 ||
                      dtype == DType::float64;
  // Without the exponent's first bit, a number is finite.
  for (auto i = size_of(dtype) - 1; floats && i < array.bytes.size(); i += size_of(dtype))
    array.bytes[i] &= std::byte{0xbf};
  return array;
}

// Contains all types. The shapes include a scalar, an empty array and five dimensions.
inline Snapshot random_snapshot(std::int64_t step, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Snapshot snapshot{.step = step,
                    .epoch = step / 100,
                    .world_size = 4,
                    .config = R"({"model":"gpt","name":"é"})",
                    .versions = R"({"libtorch":"2.11.0"})",
                    .score = 0.25,
                    .best_score = 0.125,
                    .best_step = 700};
  for (const auto dtype : all_dtypes) {
    const auto prefix = "/model/layer." + std::string(name_of(dtype));
    snapshot.arrays.push_back(random_array(prefix + ".scalar", dtype, {}, random));
    snapshot.arrays.push_back(random_array(prefix + ".empty", dtype, {3, 0, 2}, random));
    snapshot.arrays.push_back(random_array(prefix + ".one", dtype, {1}, random));
    snapshot.arrays.push_back(random_array(prefix + ".deep", dtype, {2, 3, 1, 5, 2}, random));
  }
  snapshot.arrays.push_back(random_array("/rng/rank-0000", DType::uint8, {5056}, random));
  snapshot.arrays.push_back(
      random_array("/optimizer/state/a.b/momentum_buffer", DType::float32, {7, 11}, random));
  return snapshot;
}

inline void expect_same(const Snapshot& expected, const Snapshot& found) {
  EXPECT_EQ(found.step, expected.step);
  EXPECT_EQ(found.epoch, expected.epoch);
  EXPECT_EQ(found.world_size, expected.world_size);
  EXPECT_EQ(found.config, expected.config);
  EXPECT_EQ(std::memcmp(&found.score, &expected.score, sizeof(double)), 0);
  EXPECT_EQ(std::memcmp(&found.best_score, &expected.best_score, sizeof(double)), 0);
  EXPECT_EQ(found.best_step, expected.best_step);
  EXPECT_EQ(found.versions, expected.versions);
  ASSERT_EQ(found.arrays.size(), expected.arrays.size());
  for (const auto& array : expected.arrays) {
    const auto* other = found.find(array.path);
    ASSERT_NE(other, nullptr) << array.path;
    EXPECT_EQ(other->dtype, array.dtype) << array.path;
    EXPECT_EQ(other->shape, array.shape) << array.path;
    EXPECT_EQ(other->bytes, array.bytes) << array.path;
  }
}

inline std::string contents_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void write_contents(const std::filesystem::path& file, const std::string& contents) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << contents;
}

// The sorted names in a folder, including hidden ones.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace farandole

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "lane.h"

#include "farandole/comm/gpu/kernel_jobs.h"

namespace farandole {
namespace {

std::vector<std::byte> random_bytes(std::size_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Pieces of any length and alignment, also empty ones and ones of many parts. Nothing beside them is written.
void copy_random_pieces(std::mt19937& random) {
  constexpr std::size_t gap = 40;
  std::vector<std::uint64_t> lengths;
  for (std::size_t i = 1 + random() % 12; i-- > 0;) {
    const std::uint64_t most[] = {1, 40, 5'000, 3 * copy_part_bytes};
    lengths.push_back(random() % most[random() % 4]);
    if (random() % 8 == 0) lengths.back() = copy_part_bytes * (random() % 3);
  }
  std::size_t bytes = 0;
  for (const auto length : lengths) bytes += length + gap;
  const auto from = random_bytes(bytes, random);
  auto to = random_bytes(bytes, random), expected = to;
  std::vector<CopyPiece> pieces;
  std::uint64_t parts = 0;
  std::size_t at = 0;
  for (const auto length : lengths) {
    const auto source = at + random() % gap, target = at + random() % gap;
    pieces.push_back({from.data() + source, to.data() + target, length, parts});
    std::memcpy(expected.data() + target, from.data() + source, length);
    parts += copy_parts(length);
    at += length + gap;
  }
  const BatchedCopy copy{pieces.data(), pieces.size()};
  const std::uint32_t threads = 1 + random() % 70;
  for (std::uint64_t part = 0; part < parts; ++part)
    for (std::uint32_t thread = 0; thread < threads; ++thread) copy_part(copy, part, thread, threads);
  EXPECT_EQ(to, expected);
}

void repeat(int rounds, unsigned first, void (*copy)(std::mt19937&)) {
  std::mt19937 random(first);
  for (int i = 0; i < rounds && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << first << " round " << i);
    copy(random);
  }
}

TEST(BatchedCopy, CopiesPiecesOfAnyLengthAndAlignment) {
  repeat(60, seed(5), copy_random_pieces);
}

// The threads of a block write disjoint bytes, so their order does not matter.
TEST(BatchedCopy, EachByteIsWrittenByOneThread) {
  std::vector<std::byte> from(200, std::byte{7}), to(200);
  for (std::size_t source = 0; source < 17; ++source)
    for (std::size_t target = 0; target < 17; ++target) {
      const CopyPiece piece{from.data() + source, to.data() + target, 150, 0};
      std::vector<int> writers(200);
      for (std::uint32_t thread = 0; thread < 5; ++thread) {
        std::fill(to.begin(), to.end(), std::byte{0});
        copy_part({&piece, 1}, 0, thread, 5);
        for (std::size_t i = 0; i < to.size(); ++i) writers[i] += to[i] == std::byte{7} ? 1 : 0;
      }
      for (std::size_t i = 0; i < to.size(); ++i)
        EXPECT_EQ(writers[i], i >= target && i < target + 150 ? 1 : 0) << source << " " << target << " " << i;
    }
}

}  // namespace
}  // namespace farandole

#include "farandole/base/bytes.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace farandole {
namespace {

// Both kinds of memory, and changes from one to the other.
TEST(Bytes, KeepTheirValuesWhenTheyGrow) {
  std::mt19937 random(1);
  constexpr std::size_t large = LargeAllocator<std::byte>::large;
  for (const std::size_t around : {std::size_t{1}, large, 3 * large})
    for (int i = 0; i < 20; ++i) {
      const auto size = around + random() % 9 - (around > 4 ? 4 : 0);
      Bytes bytes(size, std::byte{0x5a});
      bytes.resize(size + random() % large + 1);
      EXPECT_EQ(std::count(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size), std::byte{0x5a}),
                static_cast<std::ptrdiff_t>(size));
      bytes.back() = std::byte{1};  // The sanitizer or the kernel would notice if it did not exist.
      const Bytes copy = bytes;
      EXPECT_EQ(copy, bytes);
    }
}

TEST(Bytes, ShareABlock) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 10; ++round) {
    const std::size_t capacity = random() % (1 << 17);
    auto block = std::make_shared<MemoryBlock>(capacity);
    std::vector<Bytes> all(8);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < all.size(); ++i)
      threads.emplace_back([&, i, size = random() % (1 << 15)] {
        Bytes bytes(size, std::byte(i), LargeAllocator<std::byte>(block));
        all[i] = std::move(bytes);
      });
    for (auto& thread : threads) thread.join();
    block.reset();
    const auto copies = all;
    all[random() % all.size()].resize(random() % (1 << 16), std::byte{0xff});
    std::shuffle(all.begin(), all.end(), random);
    for (std::size_t i = 0; i < copies.size(); ++i)
      EXPECT_EQ(std::count(copies[i].begin(), copies[i].end(), std::byte(i)),
                static_cast<std::ptrdiff_t>(copies[i].size()));
    while (!all.empty()) {
      const auto found = std::ranges::count_if(
          all.back(), [&](std::byte byte) { return byte != all.back().front() && byte != std::byte{0xff}; });
      EXPECT_EQ(found, 0);
      all.pop_back();
    }
  }
}

TEST(Bytes, ABlockGivesNoMoreThanItHas) {
  MemoryBlock block(1000);
  EXPECT_EQ(block.take(1001), nullptr);
  auto* const first = block.take(10);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(block.contains(first));
  EXPECT_EQ(block.take(937), nullptr);
  EXPECT_NE(block.take(936), nullptr);
  EXPECT_EQ(block.take(1), nullptr);
  MemoryBlock none(0);
  EXPECT_EQ(none.take(1), nullptr);
  EXPECT_FALSE(none.contains(first));
}

TEST(Bytes, RefuseWhatNoMachineHas) {
  LargeAllocator<std::byte> allocator;
  EXPECT_THROW((void)allocator.allocate(std::size_t{1} << 62), std::bad_alloc);
  LargeAllocator<double> of_doubles;
  EXPECT_THROW((void)of_doubles.allocate(std::size_t{1} << 62), std::bad_alloc);
}

}  // namespace
}  // namespace farandole

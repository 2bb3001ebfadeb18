#include "farandole/base/bytes.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

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

TEST(Bytes, RefuseWhatNoMachineHas) {
  LargeAllocator<std::byte> allocator;
  EXPECT_THROW((void)allocator.allocate(std::size_t{1} << 62), std::bad_alloc);
  LargeAllocator<double> of_doubles;
  EXPECT_THROW((void)of_doubles.allocate(std::size_t{1} << 62), std::bad_alloc);
}

}  // namespace
}  // namespace farandole

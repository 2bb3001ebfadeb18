#include "farandole/base/bytes.h"

#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "lane.h"

namespace farandole {
namespace {

// Both kinds of memory, and changes from one to the other.
TEST(Bytes, KeepTheirValuesWhenTheyGrow) {
  std::mt19937 random(1);
  constexpr std::size_t large = LargeAllocator<std::byte>::large;
  for (const std::size_t around : {std::size_t{1}, large, 3 * large})
    for (int i = 0; i < rounds(6, 20); ++i) {
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

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void use(std::size_t bytes) {
  const std::unique_ptr<void, decltype(&std::free)> memory(std::malloc(bytes), &std::free);
  ASSERT_NE(memory, nullptr);
  auto* const first = static_cast<volatile char*>(memory.get());
  for (std::size_t at = 0; at < bytes; at += 4096) first[at] = 1;
}

TEST(Heap, KeepsWhatWasFreed) {
#ifdef FARANDOLE_SANITIZED
  GTEST_SKIP() << "the sanitizer has a heap of its own";
#endif
  if (!keep_freed_memory()) GTEST_SKIP() << "malloc is tuned by the environment, or not glibc's";
  constexpr std::size_t bytes = std::size_t{96} << 20;  // more than glibc's own threshold would ever grow to
  const long first = page_faults();
  use(bytes);
  EXPECT_GT(page_faults() - first, 0);
  const long before = page_faults();
  for (int i = 0; i < 3; ++i) use(bytes);
  EXPECT_LT(page_faults() - before, 1000);
}

TEST(Heap, LeavesTheUsersTuningAlone) {
  ASSERT_EQ(setenv("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=1000000", 1), 0);
  EXPECT_FALSE(keep_freed_memory());
  ASSERT_EQ(unsetenv("GLIBC_TUNABLES"), 0);
}

}  // namespace
}  // namespace farandole

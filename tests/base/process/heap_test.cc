#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <sys/resource.h>

#include "farandole/base/bytes.h"

namespace farandole {
namespace {

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

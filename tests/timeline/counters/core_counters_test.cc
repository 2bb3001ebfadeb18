#include "farandole/timeline/counters/core_counters.h"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace farandole {
namespace {

TEST(CoreCounters, ReadListsOfTheKernel) {
  EXPECT_EQ(cores_in("0-2,7"), (std::vector<int>{0, 1, 2, 7}));
  EXPECT_EQ(cores_in("3"), std::vector<int>{3});
  EXPECT_TRUE(cores_in("").empty());
  EXPECT_EQ(cores_in("1,x,3"), std::vector<int>{1});
  EXPECT_TRUE(cores_in("0-999999999").empty());
}

// Two threads on one core that both want to run: each waits for the other until both have waited.
TEST(CoreCounters, CountTheWaitForACore) {
  const int core = ::sched_getcpu();
  ASSERT_GE(core, 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(core), &one);
  std::atomic<bool> stop = false;
  std::atomic<int> ready = 0;
  const auto waited_until_stop = [&] {
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    const ThreadCore own(static_cast<int>(::syscall(SYS_gettid)));
    const auto before = own.waited_ns();
    if (!before) GTEST_SKIP() << "this kernel does not count it";
    EXPECT_EQ(own.number(), core);
    ++ready;
    while (!stop)
      if (ready >= 2 && *own.waited_ns() - *before > 20'000'000) stop = true;
  };
  std::thread other(waited_until_stop);
  std::thread(waited_until_stop).join();
  stop = true;
  other.join();
  EXPECT_GE(ready, 0);
}

TEST(CoreCounters, DoNotCallACoreIdleThatThisThreadUses) {
  const AllocatedCores cores;
  const int core = ::sched_getcpu();
  cpu_set_t one, before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(core), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  timespec begin{}, now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  do ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  while ((now.tv_sec - begin.tv_sec) * 1'000'000'000 + now.tv_nsec - begin.tv_nsec < 100'000'000);
  ::sched_setaffinity(0, sizeof before, &before);
  const auto idle = cores.idle();
  EXPECT_FALSE(std::count(idle.begin(), idle.end(), core));
}

}  // namespace
}  // namespace farandole

#include "farandole/analyzer/findings/core_sharing.h"

#include <array>
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hang.h"

#include "farandole/analyzer/report/report.h"
#include "farandole/base/clock.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/counters/counters.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

constexpr int sharing_steps = 40;

struct SharedPlace {
  std::array<std::atomic<int>, sharing_steps + 1> arrived{};
};

void work_on_core(std::int64_t cpu_ns) {
  const auto used = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  for (const auto begin = used(); used() - begin < cpu_ns;) {
  }
}

void meet(SharedPlace& place, std::size_t step) {
  for (++place.arrived[step]; place.arrived[step] < 2;) ::sched_yield();
}

// A rank whose steps need 20 ms of a core each, on this core.
void train_on_core(const std::filesystem::path& folder, int rank, int core, SharedPlace& place) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(core), &one);
  ::sched_setaffinity(0, sizeof one, &one);
  TimelineOptions options{.file = folder / ("rank-000" + std::to_string(rank) + ".ftl"),
                          .recorder_bytes = 1 << 20,
                          .rank = rank,
                          .world_size = 2,
                          .host = "node1"};
  Timeline timeline(options);
  const CounterSampler sampler(timeline, {.interval = std::chrono::milliseconds(100), .gpu = ""});
  meet(place, sharing_steps);
  for (std::size_t step = 0; step < sharing_steps; ++step) {
    timeline.set_step(static_cast<std::int64_t>(step));
    const Span whole(timeline, Category::step, "step");
    {
      const Span span(timeline, Category::backward, "backward");
      work_on_core(20'000'000);
    }
    const Span span(timeline, Category::wait, "wait");
    meet(place, step);
  }
}

// Two processes, as a launcher would start them that binds both to one core.
TEST(CoreSharing, IsTheFirstFindingOfRanksOnOneCore) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "run" / "recorder");
  void* const memory =
      ::mmap(nullptr, sizeof(SharedPlace), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto& place = *new (memory) SharedPlace;
  const int core = ::sched_getcpu();
  for (int rank = 0; rank < 2; ++rank)
    if (const auto child = ::fork(); child == 0) {
      end_if_it_hangs(120);
      train_on_core(folder / "run" / "recorder", rank, core, place);
      ::_exit(0);
    } else {
      ASSERT_GT(child, 0);
    }
  for (int rank = 0; rank < 2; ++rank) {
    int status = -1;
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
  ::munmap(memory, sizeof(SharedPlace));
  const auto report = analyze_run(folder / "run");
  for (const auto& rank : report.metrics.ranks)
    if (!rank.core_wait_known) GTEST_SKIP() << "this kernel does not count the wait for a core";
  const auto says = "waiting for a core: ranks 0, 1 share core " + std::to_string(core) + " of node1";
  EXPECT_THAT(report.verdict, ::testing::HasSubstr(says));
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings.front().title, "Ranks wait for a core");
  for (const auto& rank : report.metrics.ranks) EXPECT_GT(rank.core_wait, rank.compute / 3);
}

}  // namespace
}  // namespace farandole

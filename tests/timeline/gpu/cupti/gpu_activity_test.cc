// GPU activity with the test doubles of CUPTI (gpu/double/cupti.cc) and of the driver (gpu/double/nvml.cc).
#include "farandole/timeline/gpu/gpu_activity.h"

#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

using namespace ::testing;

class GpuActivityOfDouble : public testing::Test {
 protected:
  GpuActivityOfDouble() {
    ::setenv("FARANDOLE_CUPTI_LIBRARY", FARANDOLE_CUPTI_DOUBLE, 1);
    ::setenv("FARANDOLE_NVML_LIBRARY", FARANDOLE_NVML_DOUBLE, 1);
    void* const library = ::dlopen(FARANDOLE_CUPTI_DOUBLE, RTLD_NOW);
    kernel = reinterpret_cast<void (*)(const char*)>(::dlsym(library, "cupti_double_kernel"));
    endless_kernel = reinterpret_cast<void (*)(const char*)>(::dlsym(library, "cupti_double_endless_kernel"));
    records_queries = reinterpret_cast<bool (*)()>(::dlsym(library, "cupti_double_records_queries"));
    enabled = reinterpret_cast<int (*)()>(::dlsym(library, "cupti_double_enabled"));
    TimelineOptions options{.file = folder / "rank-0000.ftl", .recorder_bytes = 1 << 20};
    timeline = std::make_unique<Timeline>(options);
  }
  ~GpuActivityOfDouble() override {
    ::unsetenv("FARANDOLE_CUPTI_LIBRARY");
    ::unsetenv("FARANDOLE_NVML_LIBRARY");
    ::unsetenv("NVML_DOUBLE_FAIL");
    ::unsetenv("CUPTI_DOUBLE_FAIL");
  }

  std::unique_ptr<GpuActivity> start(const ActivitySteps& steps = {{0, 100}}) {
    return GpuActivity::start(*timeline, steps, collectives, why_not);
  }
  // "name step phase" of all kernels.
  std::vector<std::string> kernels() {
    timeline.reset();
    const RecorderFile file(folder / "rank-0000.ftl");
    std::vector<std::string> result;
    for (std::size_t slot = 0; slot < file.threads().size(); ++slot)
      for (const Record& record : file.records(slot))
        if (record.category == Category::gpu_kernel)
          result.push_back(file.names().at(record.name) + " " + std::to_string(record.step) + " " +
                           (record.launched_in() ? std::string(name_of(*record.launched_in())) : "none"));
    return result;
  }

  const TemporaryFolder folder;
  std::unique_ptr<Timeline> timeline;
  CollectiveLaunches collectives;
  std::string why_not;
  void (*kernel)(const char*) = nullptr;
  void (*endless_kernel)(const char*) = nullptr;
  bool (*records_queries)() = nullptr;
  int (*enabled)() = nullptr;
};

TEST_F(GpuActivityOfDouble, RecordsTheStepsOfTheWindow) {
  {
    const auto activity = start({{1, 2}});
    ASSERT_NE(activity, nullptr) << why_not;
    EXPECT_EQ(enabled(), 0);
    for (std::int64_t step = 0; step < 4; ++step) {
      timeline->set_step(step);
      activity->mark_step(step);
      kernel("between");
      const Span span(*timeline, Category::forward, "forward");
      kernel("inside");
    }
  }
  EXPECT_EQ(enabled(), 0);
  EXPECT_THAT(kernels(),
              ElementsAre("between 1 none", "inside 1 forward", "between 2 none", "inside 2 forward"));
}

// The steps of a run that continues do not begin at 0.
TEST_F(GpuActivityOfDouble, RecordsASampleAndWhatIsAskedFor) {
  constexpr std::int64_t first = 700;
  std::vector<std::int64_t> recorded;
  {
    const auto activity = start(ActivitySteps::sample());
    ASSERT_NE(activity, nullptr) << why_not;
    EXPECT_EQ(enabled(), 0);
    for (std::int64_t ordinal = 0; ordinal < 1'100; ++ordinal) {
      if (ordinal == 500) activity->record_next_steps();
      timeline->set_step(first + ordinal);
      activity->mark_step(first + ordinal);
      activity->mark_step(first + ordinal);  // the same step
      if (enabled() > 0) recorded.push_back(ordinal);
      kernel("kernel");
      activity->mark_step(-1);
    }
  }
  std::vector<std::int64_t> expected;
  std::vector<std::string> named;
  for (const std::int64_t begin : {10, 500, 1'010})
    for (std::int64_t i = begin; i < begin + 10; ++i) {
      expected.push_back(i);
      named.push_back("kernel " + std::to_string(first + i) + " none");
    }
  EXPECT_EQ(recorded, expected);
  EXPECT_EQ(kernels(), named);
}

TEST_F(GpuActivityOfDouble, ReadsBuffersAfterTheWindowByItself) {
  const auto activity = start({{1, 1}});
  ASSERT_NE(activity, nullptr) << why_not;
  for (std::int64_t step = 0; step < 3; ++step) {
    timeline->set_step(step);
    activity->mark_step(step);
    kernel("kernel");
  }
  const auto count = [&] {
    const RecorderFile file(folder / "rank-0000.ftl");
    std::size_t found = 0;
    for (std::size_t slot = 0; slot < file.threads().size(); ++slot)
      for (const Record& record : file.records(slot))
        found += record.category == Category::gpu_kernel ? 1 : 0;
    return found;
  };
  for (int i = 0; i < 3'000 && count() == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(count(), 1);
}

TEST_F(GpuActivityOfDouble, FlushRecordsWhatHasEnded) {
  const auto activity = start();
  ASSERT_NE(activity, nullptr) << why_not;
  timeline->set_step(5);
  activity->mark_step(5);
  const auto before = now_ns();
  kernel("ncclDevKernel_AllReduce");
  collectives.add("bucket 3", before, now_ns());
  activity->flush();
  const RecorderFile file(folder / "rank-0000.ftl");
  bool found = false;
  for (const auto& name : file.names()) found = found || name == "ncclDevKernel_AllReduce(bucket 3)";
  EXPECT_TRUE(found);
}

// As after the loss of a rank, for which a kernel waits.
TEST_F(GpuActivityOfDouble, WorkThatDoesNotEndTakesNothingElseAlong) {
  {
    const auto activity = start();
    ASSERT_NE(activity, nullptr) << why_not;
    timeline->set_step(5);
    activity->mark_step(5);
    kernel("complete");
    endless_kernel("endless");
  }
  EXPECT_THAT(kernels(), ElementsAre("complete 5 none"));
}

// The host asks for events very often while it waits.
TEST_F(GpuActivityOfDouble, DoesNotRecordQuestionsForEvents) {
  const auto activity = start({{1, 2}});
  ASSERT_NE(activity, nullptr) << why_not;
  for (std::int64_t step = 0; step < 4; ++step) {
    activity->mark_step(step);
    EXPECT_EQ(enabled() > 0, step == 1 || step == 2);
    EXPECT_FALSE(records_queries()) << step;
  }
}

TEST_F(GpuActivityOfDouble, SaysWhyItCannotRecord) {
  {
    const auto first = start();
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(start(), nullptr);
    EXPECT_EQ(why_not, "this process already records it");
  }
  for (const char* const call :
       {"cuptiActivityEnable", "cuptiActivityRegisterCallbacks", "cuptiActivityRegisterTimestampCallback"}) {
    ::setenv("CUPTI_DOUBLE_FAIL", call, 1);
    EXPECT_EQ(start(), nullptr) << call;
    EXPECT_THAT(why_not, HasSubstr("CUPTI says ")) << call;
    EXPECT_EQ(enabled(), 0) << call;
  }
  ::unsetenv("CUPTI_DOUBLE_FAIL");
  ::setenv("NVML_DOUBLE_FAIL", "1", 1);
  EXPECT_EQ(start(), nullptr);
  EXPECT_THAT(why_not, HasSubstr("no NVIDIA driver answers"));
  ::unsetenv("NVML_DOUBLE_FAIL");
  ::setenv("FARANDOLE_CUPTI_LIBRARY", "libm.so.6", 1);
  EXPECT_EQ(start(), nullptr);
  EXPECT_THAT(why_not, HasSubstr("libm.so.6 has no cuptiActivityRegisterCallbacks"));
  ::setenv("FARANDOLE_CUPTI_LIBRARY", "/proc/nowhere/libcupti.so", 1);
  EXPECT_EQ(start(), nullptr);
  EXPECT_THAT(why_not, AllOf(HasSubstr("/proc/nowhere/libcupti.so cannot be loaded"),
                             HasSubstr("FARANDOLE_CUPTI_LIBRARY")));
}

}  // namespace
}  // namespace farandole

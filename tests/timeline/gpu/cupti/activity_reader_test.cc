#include "farandole/timeline/gpu/cupti/activity_reader.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

#include "lane.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/gpu/gpu_activity.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

template <class Record>
Record zeroed(CUpti_ActivityKind kind) {
  Record record{};
  record.kind = kind;
  return record;
}

CUpti_ActivityKernel10 kernel(std::uint32_t correlation, std::uint64_t start, const char* name,
                              std::uint32_t stream = 7) {
  auto record = zeroed<CUpti_ActivityKernel10>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  record.start = start;
  record.end = start + 10;
  record.correlationId = correlation;
  record.streamId = stream;
  record.name = name;
  return record;
}

CUpti_ActivityAPI call(std::uint32_t correlation, std::uint64_t start) {
  auto record = zeroed<CUpti_ActivityAPI>(CUPTI_ACTIVITY_KIND_RUNTIME);
  record.start = start;
  record.end = start + 1;
  record.correlationId = correlation;
  return record;
}

// A recorder, a history of steps of 1000 ns (step s from 1000·s to 1000·s + 900, in forward to 1000·s + 400,
// then in backward), and a reader.
struct Recording {
  Recording() : timeline(options()) {
    for (std::int64_t step = 1; step < 100; ++step) {
      history.set_step(step, 1000 * step);
      history.enter(Category::forward, 1000 * step);
      history.enter(Category::backward, 1000 * step + 400);
      history.enter(std::nullopt, 1000 * step + 900);
      history.set_step(-1, 1000 * step + 900);
    }
  }
  TimelineOptions options() const { return {.file = folder / "rank-0000.ftl", .recorder_bytes = 1 << 20}; }
  template <class Record>
  void read(const Record& record) {
    reader.read(reinterpret_cast<const CUpti_Activity&>(record));
  }
  // "track|category|name|step and phase|start|end".
  std::vector<std::string> events() {
    reader.finish();
    const RecorderFile file(options().file);
    std::vector<std::string> result;
    for (std::size_t slot = 0; slot < file.threads().size(); ++slot)
      for (const Record& r : file.records(slot))
        result.push_back(file.threads().at(r.track).name + "|" + std::string(name_of(r.category)) + "|" +
                         file.names().at(r.name) + "|" + std::to_string(r.step) +
                         (r.launched_in() ? " " + std::string(name_of(*r.launched_in())) : "") + "|" +
                         std::to_string(r.start_ns) + "|" + std::to_string(r.end_ns));
    return result;
  }

  TemporaryFolder folder;
  Timeline timeline;
  LaunchHistory history;
  CollectiveLaunches collectives;
  ActivityReader reader{timeline, history, collectives};
};

TEST(ActivityReader, KernelsCarryTheStepAndPhaseOfTheirLaunch) {
  Recording recording;
  recording.read(call(1, 1850));  // launched at the end of step 1 and run in step 2
  recording.read(kernel(1, 2100, "_ZN2at6native4gemmIfEEvPT_"));
  recording.read(kernel(2, 3100, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9));  // its launch arrives later
  recording.read(call(2, 2200));
  recording.read(kernel(3, 4100, nullptr));  // its launch never arrives
  EXPECT_THAT(recording.events(),
              UnorderedElementsAre(
                  "GPU 0 stream 7|gpu_kernel|at::native::gemm<float>|1 backward|2100|2110",
                  "GPU 0 stream 9|gpu_kernel|ncclDevKernel_AllReduce_Sum_f32_RING_LL|2 forward|3100|3110",
                  "GPU 0 stream 7|gpu_kernel|kernel|4 forward|4100|4110"));
}

// After 2^32 calls, correlation ids begin at 0 again: the smallest one is then the newest.
TEST(ActivityReader, CorrelationIdsMayWrapAround) {
  Recording recording;
  constexpr std::uint32_t calls = 1 << 18;
  for (std::uint32_t i = 0; i < calls; ++i) recording.read(call(UINT32_MAX - calls + 1 + i, 500));
  for (std::uint32_t i = 0; i < 3; ++i) {
    recording.read(call(i, 1850));
    recording.read(kernel(i, 2100 + 20 * i, "gemm"));
  }
  EXPECT_THAT(recording.events(),
              UnorderedElementsAre("GPU 0 stream 7|gpu_kernel|gemm|1 backward|2100|2110",
                                   "GPU 0 stream 7|gpu_kernel|gemm|1 backward|2120|2130",
                                   "GPU 0 stream 7|gpu_kernel|gemm|1 backward|2140|2150"));
}

TEST(ActivityReader, KnowsCopiesSetsAndSynchronisation) {
  Recording recording;
  auto copy = zeroed<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY);
  copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  copy.start = 5000, copy.end = 5100, copy.correlationId = 4, copy.deviceId = 1;
  recording.read(call(4, 4900));  // between steps
  recording.read(copy);
  auto set = zeroed<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET);
  set.start = 5200, set.end = 5210, set.correlationId = 5;
  recording.read(set);
  recording.read(call(5, 5150));
  auto wait = call(6, 5300);
  wait.cbid = CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020, wait.end = 5400;
  recording.read(wait);
  EXPECT_THAT(recording.events(),
              UnorderedElementsAre("GPU 1 stream 0|gpu_memcpy|copy host to device|-1|5000|5100",
                                   "GPU 0 stream 0|gpu_memcpy|set memory|5 forward|5200|5210",
                                   "GPU synchronisation|wait|wait for a stream|5 forward|5300|5400"));
}

TEST(ActivityReader, WorkCarriesItsBytesAndHowLongItWasQueued) {
  Recording recording;
  auto copy = zeroed<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY);
  copy.start = 5000, copy.end = 5100, copy.correlationId = 4, copy.bytes = 4096;
  recording.read(call(4, 4900));
  recording.read(copy);
  recording.read(kernel(7, 6000, "gemm"));  // its launch never arrives
  recording.reader.finish();
  const RecorderFile file(recording.options().file);
  const auto records = file.records(0);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].queued_ns(), 100u);
  EXPECT_EQ(records[0].mpi_call().bytes, 4096u);
  EXPECT_EQ(records[1].queued_ns(), 0u);
  EXPECT_EQ(records[1].mpi_call().bytes, std::nullopt);
}

// Both the kernel's record and that of its launch may come first.
TEST(ActivityReader, KernelsOfNcclCarryTheBucketThatLaunchedThem) {
  Recording recording;
  recording.collectives.add("bucket 0", 1'100, 1'200);
  recording.collectives.add("bucket 1", 1'200, 1'300);
  recording.read(call(1, 1'150));
  recording.read(kernel(1, 2'000, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9));
  recording.read(kernel(2, 2'020, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9));
  recording.read(call(2, 1'250));
  recording.read(call(3, 1'400));
  recording.read(kernel(3, 2'040, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9));
  recording.read(call(4, 1'150));
  recording.read(kernel(4, 2'060, "gemm"));
  EXPECT_THAT(
      recording.events(),
      UnorderedElementsAre(
          "GPU 0 stream 9|gpu_kernel|ncclDevKernel_AllReduce_Sum_f32_RING_LL(bucket 0)|1 forward|2000|2010",
          "GPU 0 stream 9|gpu_kernel|ncclDevKernel_AllReduce_Sum_f32_RING_LL(bucket 1)|1 forward|2020|2030",
          "GPU 0 stream 9|gpu_kernel|ncclDevKernel_AllReduce_Sum_f32_RING_LL|1 backward|2040|2050",
          "GPU 0 stream 7|gpu_kernel|gemm|1 forward|2060|2070"));
}

TEST(ActivityReader, KernelsOfRanksThatShareAGpuCarryTheCollectiveThatLaunchedThem) {
  Recording recording;
  recording.collectives.add("bucket 0", 1'100, 1'200);
  recording.read(call(1, 1'150));
  recording.read(kernel(1, 2'000, "farandole_reduce_peers", 9));
  EXPECT_THAT(
      recording.events(),
      UnorderedElementsAre("GPU 0 stream 9|gpu_kernel|farandole_reduce_peers(bucket 0)|1 forward|2000|2010"));
}

TEST(ActivityReader, RangesOfNvtx) {
  Recording recording;
  const auto marker = [](std::uint32_t id, std::uint64_t at, CUpti_ActivityFlag flags, const char* name) {
    auto record = zeroed<CUpti_ActivityMarker2>(CUPTI_ACTIVITY_KIND_MARKER);
    record.id = id, record.timestamp = at, record.flags = flags, record.name = name;
    return record;
  };
  recording.read(marker(1, 7000, CUPTI_ACTIVITY_FLAG_MARKER_START, "outer"));
  recording.read(marker(2, 7100, CUPTI_ACTIVITY_FLAG_MARKER_START, "inner"));
  recording.read(marker(2, 7200, CUPTI_ACTIVITY_FLAG_MARKER_END, nullptr));
  recording.read(marker(3, 7250, CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, "now"));
  recording.read(marker(1, 7300, CUPTI_ACTIVITY_FLAG_MARKER_END, nullptr));
  recording.read(marker(9, 7400, CUPTI_ACTIVITY_FLAG_MARKER_END, nullptr));  // began before the recording
  EXPECT_THAT(recording.events(), UnorderedElementsAre("NVTX|other|inner|7 forward|7100|7200",
                                                       "NVTX|other|outer|7 forward|7000|7300"));
}

// The launch of a graph is one call with many kernels. Work that the device could not time is left out.
TEST(ActivityReader, GraphsAndMissingTimes) {
  Recording recording;
  recording.read(kernel(8, 6100, "k"));
  recording.read(call(8, 6000));
  recording.read(kernel(8, 6200, "k"));
  auto lost = kernel(8, 0, "k");
  lost.end = 0;
  recording.read(lost);
  recording.read(zeroed<CUpti_ActivityAPI>(CUPTI_ACTIVITY_KIND_OVERHEAD));
  EXPECT_THAT(recording.events(), UnorderedElementsAre("GPU 0 stream 7|gpu_kernel|k|6 forward|6100|6110",
                                                       "GPU 0 stream 7|gpu_kernel|k|6 forward|6200|6210"));
}

// Buffers arrive in any order. The result must be the same.
TEST(ActivityReader, OrderOfRecordsDoesNotMatter) {
  std::mt19937 random(seed(1));
  std::vector<std::string> expected;
  for (int trial = 0; trial < 20; ++trial) {
    Recording recording;
    std::vector<int> order(200);
    for (int i = 0; i < 200; ++i) order[static_cast<std::size_t>(i)] = i;
    if (trial > 0) std::shuffle(order.begin(), order.end(), random);
    for (const int i : order) {
      const auto correlation = static_cast<std::uint32_t>(i / 2);
      if (i % 2 == 0)
        recording.read(call(correlation, 1000 + 700 * correlation));
      else
        recording.read(kernel(correlation, 1500 + 700 * correlation, "_Z1kv", correlation % 3));
    }
    auto events = recording.events();
    std::sort(events.begin(), events.end());
    if (trial == 0) expected = events;
    EXPECT_EQ(events, expected);
    EXPECT_EQ(events.size(), 100u);
  }
}

TEST(GpuActivity, SaysWhyThereIsNone) {
  std::string why;
  Timeline none;
  const Recording recording;
  EXPECT_EQ(GpuActivity::start(none, {}, recording.collectives, why), nullptr);
  EXPECT_EQ(why, "it is switched off");
  const auto activity =
      GpuActivity::start(const_cast<Timeline&>(recording.timeline), {}, recording.collectives, why);
  EXPECT_EQ(activity == nullptr, !why.empty()) << why;
}

}  // namespace
}  // namespace farandole

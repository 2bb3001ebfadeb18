#include "farandole/timeline/counters.h"

#include <atomic>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "temporary_folder.h"

#include "farandole/timeline/gpu_counters.h"
#include "farandole/timeline/recorder_file.h"

namespace farandole {
namespace {

TimelineOptions options_in(const TemporaryFolder& folder) {
  TimelineOptions options;
  options.file = folder / "rank-0000.ftl";
  options.recorder_bytes = 1 << 20;
  return options;
}

std::map<std::string, std::vector<double>> counters_of(const std::filesystem::path& path) {
  const RecorderFile file(path);
  std::map<std::string, std::vector<double>> values;
  for (std::size_t slot = 0; slot < file.threads().size(); ++slot)
    for (const Record& record : file.records(slot)) {
      EXPECT_EQ(record.kind, RecordKind::counter);
      values[file.names().at(record.name)].push_back(record.value());
    }
  return values;
}

TEST(CounterSampler, RecordsAtItsEndWithoutWaitingForTheInterval) {
  const TemporaryFolder folder;
  const TimelineOptions options = options_in(folder);
  {
    Timeline timeline(options);
    const CounterSampler sampler(timeline, {std::chrono::hours(24), ""});
  }
  const auto values = counters_of(options.file);
  ASSERT_EQ(values.at("memory MiB").size(), 1u);
  EXPECT_GT(values.at("memory MiB")[0], 0.5);
  EXPECT_EQ(values.count("GPU %"), 0u);
}

TEST(CounterSampler, SamplesOnceAnInterval) {
  const TemporaryFolder folder;
  const TimelineOptions options = options_in(folder);
  {
    Timeline timeline(options);
    const CounterSampler sampler(timeline, {std::chrono::milliseconds(2), ""});
    // Works until some samples must have been taken; CPU time passes meanwhile.
    std::atomic<std::uint64_t> sum{0};
    for (const auto start = now_ns(); now_ns() - start < 50'000'000;) ++sum;
  }
  const auto values = counters_of(options.file);
  ASSERT_GE(values.at("CPU %").size(), 2u);
  double total = 0;
  for (const double percent : values.at("CPU %")) {
    EXPECT_GE(percent, 0);
    total += percent;
  }
  EXPECT_GT(total, 0);
}

TEST(CounterSampler, WithoutARecorderDoesNothing) {
  Timeline timeline;
  const CounterSampler sampler(timeline, {std::chrono::milliseconds(1), "0"});
}

TEST(GpuCounters, AbsentDeviceIsNoError) {
  for (const char* device : {"", "x", "99999", "-1", "0x", "GPU-none", "ffff:ff:ff.f"})
    EXPECT_EQ(GpuCounters::open(device), nullptr) << device;
}

TEST(GpuCounters, ReadsTheFirstDevice) {
  const auto gpu = GpuCounters::open("0");
  if (gpu == nullptr) GTEST_SKIP() << "there is no NVIDIA driver or device";
  const auto sample = gpu->sample();
  if (!sample) GTEST_SKIP() << "the device does not tell its load";
  EXPECT_GE(sample->utilization_percent, 0);
  EXPECT_LE(sample->utilization_percent, 100);
  EXPECT_GT(sample->memory_mib, 0);
}

}  // namespace
}  // namespace farandole

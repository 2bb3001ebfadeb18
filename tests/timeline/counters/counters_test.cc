#include "farandole/timeline/counters/counters.h"

#include <array>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/counters/gpu_counters.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

TimelineOptions options_in(const TemporaryFolder& folder) {
  return {.file = folder / "rank-0000.ftl", .recorder_bytes = 1 << 20};
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

std::uint64_t records_in(const std::filesystem::path& path) {
  const RecorderFile file(path);
  std::uint64_t records = 0;
  for (const auto& thread : file.threads()) records += thread.recorded;
  return records;
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
    // Works until there are more counters than one sample has. This uses CPU time.
    while (records_in(options.file) < 25) {
    }
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

// The counters must contain at least what the test itself does.
TEST(ProcessCounters, CountWhatHappens) {
  const auto before = ProcessCounters::read();
  constexpr std::size_t pages = 2000;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* const memory =
      ::mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ::madvise(memory, pages * page, MADV_NOHUGEPAGE);
  for (std::size_t i = 0; i < pages; ++i) static_cast<volatile char*>(memory)[i * page] = 1;
  ::munmap(memory, pages * page);
  std::thread([] { std::this_thread::yield(); }).join();
  const auto after = ProcessCounters::read();
  EXPECT_GE(after.page_faults - before.page_faults, static_cast<std::int64_t>(pages));
  EXPECT_GT(after.cpu_ns, before.cpu_ns);
  EXPECT_GE(after.context_switches + after.preemptions, before.context_switches + before.preemptions);
  if (before.file_written_bytes) {
    EXPECT_GE(after.file_written_bytes.value_or(-1), *before.file_written_bytes);
  }
  if (before.network_sent_bytes) {
    EXPECT_GE(after.network_sent_bytes.value_or(-1), *before.network_sent_bytes);
  }
}

TEST(CounterSampler, RecordsRates) {
  const TemporaryFolder folder;
  const TimelineOptions options = options_in(folder);
  {
    Timeline timeline(options);
    const CounterSampler sampler(timeline, {std::chrono::hours(24), ""});
  }
  const auto values = counters_of(options.file);
  for (const char* name :
       {"CPU %", "page faults/s", "major page faults/s", "context switches/s", "preemptions/s"}) {
    ASSERT_EQ(values.count(name), 1u) << name;
    EXPECT_GE(values.at(name)[0], 0) << name;
  }
}

TEST(CounterSampler, WithoutARecorderDoesNothing) {
  Timeline timeline;
  const CounterSampler sampler(timeline, {std::chrono::milliseconds(1), "0"});
}

// A launcher gives each rank its own device, or all ranks the same list. CUDA ends the list at the first
// entry that is not a device.
TEST(GpuOfRank, IsWhatCudaWouldShowIt) {
  const char* uuid = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
  const char* slice = "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/2";
  const auto list = std::string(uuid) + "," + slice;
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(gpu_of_rank(rank, nullptr), std::to_string(rank));
    EXPECT_EQ(gpu_of_rank(rank, "3"), "3");
    EXPECT_EQ(gpu_of_rank(rank, "7,5,6"), (std::array{"7", "5", "6"}[static_cast<std::size_t>(rank % 3)]));
    EXPECT_EQ(gpu_of_rank(rank, list.c_str()), rank % 2 == 0 ? uuid : slice);
    EXPECT_EQ(gpu_of_rank(rank, "2,-1,0"), "2");
    for (const char* none : {"", "-1", "NoDevFiles", ",1", " "})
      EXPECT_EQ(gpu_of_rank(rank, none), "") << none;
  }
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
  if (sample->power_w) {
    EXPECT_GT(*sample->power_w, 0);
  }
}

}  // namespace
}  // namespace farandole

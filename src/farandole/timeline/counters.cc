#include "farandole/timeline/counters.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <unistd.h>

#include "farandole/timeline/gpu_counters.h"

namespace farandole {
namespace {

// Of all threads, those of libraries included.
std::int64_t cpu_time_ns() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::optional<double> resident_mib() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) return std::nullopt;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

class Sampler {
 public:
  Sampler(Timeline& timeline, const std::string& gpu)
      : timeline_(timeline),
        cpu_(timeline.intern("CPU %")),
        memory_(timeline.intern("memory MiB")),
        gpu_load_(timeline.intern("GPU %")),
        gpu_memory_(timeline.intern("GPU memory MiB")),
        gpu_(GpuCounters::open(gpu)) {}

  void sample() {
    const std::int64_t now = now_ns();
    const std::int64_t cpu = cpu_time_ns();
    if (now > last_ns_)
      timeline_.counter(
          cpu_, 100.0 * static_cast<double>(cpu - last_cpu_ns_) / static_cast<double>(now - last_ns_), now);
    last_ns_ = now;
    last_cpu_ns_ = cpu;
    if (const auto mib = resident_mib()) timeline_.counter(memory_, *mib, now);
    const auto gpu = gpu_ != nullptr ? gpu_->sample() : std::nullopt;
    if (!gpu) return;
    timeline_.counter(gpu_load_, gpu->utilization_percent, now);
    timeline_.counter(gpu_memory_, gpu->memory_mib, now);
  }

 private:
  Timeline& timeline_;
  NameId cpu_, memory_, gpu_load_, gpu_memory_;
  std::unique_ptr<GpuCounters> gpu_;
  std::int64_t last_ns_ = now_ns();
  std::int64_t last_cpu_ns_ = cpu_time_ns();
};

}  // namespace

CounterSampler::CounterSampler(Timeline& timeline, const CounterOptions& options)
    : timeline_(timeline), options_(options) {
  if (timeline_.enabled()) thread_ = std::thread([this] { run(); });
}

CounterSampler::~CounterSampler() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void CounterSampler::run() {
  timeline_.name_thread("counters");
  Sampler sampler(timeline_, options_.gpu);
  std::unique_lock lock(mutex_);
  // On a fixed grid, so that slow samples do not stretch the interval.
  for (auto next = std::chrono::steady_clock::now() + options_.interval;
       !wake_.wait_until(lock, next, [this] { return stop_; });
       next = std::max(next + options_.interval, std::chrono::steady_clock::now()))
    sampler.sample();
  sampler.sample();
}

}  // namespace farandole

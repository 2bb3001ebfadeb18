#include "farandole/timeline/counters/counters.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "farandole/base/quiet_thread.h"
#include "farandole/timeline/counters/gpu_counters.h"
#include "farandole/timeline/counters/process_counters.h"

namespace farandole {
namespace {

// A counter of the timeline that shows the growth per second of a field of ProcessCounters.
struct Rate {
  NameId name;
  double unit;  // how much of the field makes one unit of the counter
  std::function<std::optional<std::int64_t>(const ProcessCounters&)> field;
};

class Sampler {
 public:
  Sampler(Timeline& timeline, const std::string& gpu)
      : timeline_(timeline), memory_(timeline.intern("memory MiB")), gpu_(GpuCounters::open(gpu)) {
    using Counters = ProcessCounters;
    rate("CPU %", 1e7, [](const Counters& c) { return c.cpu_ns; });
    rate("page faults/s", 1, [](const Counters& c) { return c.page_faults; });
    rate("major page faults/s", 1, [](const Counters& c) { return c.major_page_faults; });
    rate("context switches/s", 1, [](const Counters& c) { return c.context_switches; });
    rate("preemptions/s", 1, [](const Counters& c) { return c.preemptions; });
    rate("file read MB/s", 1e6, [](const Counters& c) { return c.file_read_bytes; });
    rate("file write MB/s", 1e6, [](const Counters& c) { return c.file_written_bytes; });
    rate("host network in MB/s", 1e6, [](const Counters& c) { return c.network_received_bytes; });
    rate("host network out MB/s", 1e6, [](const Counters& c) { return c.network_sent_bytes; });
  }

  void sample() {
    const std::int64_t now = now_ns();
    const auto counters = ProcessCounters::read();
    const double seconds = static_cast<double>(now - last_ns_) * 1e-9;
    for (const auto& rate : rates_) {
      const auto value = rate.field(counters), before = rate.field(last_);
      if (seconds > 0 && value && before)
        timeline_.counter(rate.name, static_cast<double>(*value - *before) / rate.unit / seconds, now);
    }
    last_ns_ = now;
    last_ = counters;
    if (const auto mib = resident_mib()) timeline_.counter(memory_, *mib, now);
    if (gpu_ != nullptr) sample_gpu(now);
  }

 private:
  void rate(const char* name, double unit,
            std::function<std::optional<std::int64_t>(const ProcessCounters&)> field) {
    rates_.push_back({timeline_.intern(name), unit, std::move(field)});
  }

  void sample_gpu(std::int64_t now) {
    const auto gpu = gpu_->sample();
    if (!gpu) return;
    timeline_.counter(timeline_.intern("GPU %"), gpu->utilization_percent, now);
    timeline_.counter(timeline_.intern("GPU memory MiB"), gpu->memory_mib, now);
    if (gpu->power_w) timeline_.counter(timeline_.intern("GPU power W"), *gpu->power_w, now);
    if (gpu->celsius) timeline_.counter(timeline_.intern("GPU temperature C"), *gpu->celsius, now);
  }

  Timeline& timeline_;
  NameId memory_;
  std::vector<Rate> rates_;
  std::unique_ptr<GpuCounters> gpu_;
  std::int64_t last_ns_ = now_ns();
  ProcessCounters last_ = ProcessCounters::read();
};

}  // namespace

CounterSampler::CounterSampler(Timeline& timeline, const CounterOptions& options)
    : timeline_(timeline), options_(options) {
  if (timeline_.enabled()) thread_ = start_quiet_thread([this] { run(); });
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
  // Samples are taken on a fixed grid, so that slow samples do not stretch the interval.
  for (auto next = std::chrono::steady_clock::now() + options_.interval;
       !wake_.wait_until(lock, next, [this] { return stop_; });
       next = std::max(next + options_.interval, std::chrono::steady_clock::now()))
    sampler.sample();
  sampler.sample();
}

}  // namespace farandole

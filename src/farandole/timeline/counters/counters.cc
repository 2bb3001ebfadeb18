#include "farandole/timeline/counters/counters.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "farandole/base/process/quiet_thread.h"
#include "farandole/base/text/phrases.h"
#include "farandole/timeline/counters/core_counters.h"
#include "farandole/timeline/counters/gpu_counters.h"

namespace farandole {
namespace {

class Sampler {
 public:
  Sampler(Timeline& timeline, const std::string& gpu, int training_tid)
      : timeline_(timeline),
        memory_(timeline.intern("memory MiB")),
        core_(timeline.intern("core")),
        training_(training_tid),
        gpu_(GpuCounters::open(gpu)) {
    rate("CPU %", 1e7, [](const Counters& c) { return c.cpu_ns; });
    rate("page faults/s", 1, [](const Counters& c) { return c.page_faults; });
    rate("major page faults/s", 1, [](const Counters& c) { return c.major_page_faults; });
    rate("context switches/s", 1, [](const Counters& c) { return c.context_switches; });
    rate("preemptions/s", 1, [](const Counters& c) { return c.preemptions; });
    rate("file read MB/s", 1e6, [](const Counters& c) { return c.file_read_bytes; });
    rate("file write MB/s", 1e6, [](const Counters& c) { return c.file_written_bytes; });
    rate("host network in MB/s", 1e6, [](const Counters& c) { return c.network_received_bytes; });
    rate("host network out MB/s", 1e6, [](const Counters& c) { return c.network_sent_bytes; });
    rate("core wait %", 1e7, [](const Counters& c) { return c.core_wait_ns; });
    last_ = read();
  }

  void sample() {
    const std::int64_t now = now_ns();
    const auto counters = read();
    const double seconds = static_cast<double>(now - last_ns_) * 1e-9;
    for (const auto& rate : rates_) {
      const auto value = rate.field(counters), before = rate.field(last_);
      // A sum over the interfaces of the network shrinks if one of them disappears.
      if (seconds > 0 && value && before && *value >= *before)
        timeline_.counter(rate.name, static_cast<double>(*value - *before) / rate.unit / seconds, now);
    }
    last_ns_ = now;
    last_ = counters;
    if (const auto mib = resident_mib()) timeline_.counter(memory_, *mib, now);
    if (const auto core = training_.number()) timeline_.counter(core_, *core, now);
    if (gpu_ != nullptr) sample_gpu(now);
  }

  void end() {
    if (const auto idle = cores_.idle(); !idle.empty())
      timeline_.instant(timeline_.intern("idle cores " + describe_numbers(idle)));
  }

 private:
  struct Counters : ProcessCounters {
    std::optional<std::int64_t> core_wait_ns;
  };
  // A counter of the timeline that shows the growth per second of a field.
  struct Rate {
    NameId name;
    double unit;  // how much of the field makes one unit of the counter
    std::function<std::optional<std::int64_t>(const Counters&)> field;
  };

  Counters read() const { return {ProcessCounters::read(), training_.waited_ns()}; }

  void rate(const char* name, double unit,
            std::function<std::optional<std::int64_t>(const Counters&)> field) {
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
  const NameId memory_, core_;
  const ThreadCore training_;
  const AllocatedCores cores_;
  std::vector<Rate> rates_;
  std::unique_ptr<GpuCounters> gpu_;
  std::int64_t last_ns_ = now_ns();
  Counters last_;
};

std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

void add(std::optional<std::int64_t>& sum, std::int64_t value) {
  sum = sum.value_or(0) + value;
}

// proc(5), /proc/pid/io.
void read_files(ProcessCounters& counters) {
  std::ifstream file("/proc/self/io");
  std::string key;
  for (std::int64_t value = 0; file >> key >> value;) {
    if (key == "read_bytes:") counters.file_read_bytes = value;
    if (key == "write_bytes:") counters.file_written_bytes = value;
  }
}

// proc(5), /proc/pid/net/dev: two lines of headings, then "eth0: BYTES PACKETS ERRS DROP FIFO FRAME
// COMPRESSED MULTICAST BYTES …".
void read_interfaces(ProcessCounters& counters) {
  std::ifstream file("/proc/self/net/dev");
  constexpr auto line_end = std::numeric_limits<std::streamsize>::max();
  file.ignore(line_end, '\n').ignore(line_end, '\n');
  for (std::string name; std::getline(file >> std::ws, name, ':'); file.ignore(line_end, '\n')) {
    std::int64_t received = 0, sent = 0, skipped = 0;
    file >> received;
    for (int i = 0; i < 7; ++i) file >> skipped;
    if (!(file >> sent)) return;
    if (name == "lo") continue;
    add(counters.network_received_bytes, received);
    add(counters.network_sent_bytes, sent);
  }
}

// See the kernel's sysfs-class-infiniband. The counters count words of 4 bytes.
void read_infiniband(ProcessCounters& counters) {
  std::error_code none;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", none)) {
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", none)) {
      if (const auto words = number_in(port.path() / "counters/port_rcv_data"))
        add(counters.network_received_bytes, 4 * *words);
      if (const auto words = number_in(port.path() / "counters/port_xmit_data"))
        add(counters.network_sent_bytes, 4 * *words);
    }
  }
}

}  // namespace

CounterSampler::CounterSampler(Timeline& timeline, const CounterOptions& options)
    : timeline_(timeline),
      options_(options),
      training_tid_(options.of_main_thread ? ::getpid() : static_cast<int>(::syscall(SYS_gettid))) {
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
  Sampler sampler(timeline_, options_.gpu, training_tid_);
  std::unique_lock lock(mutex_);
  // Samples are taken on a fixed grid, so that slow samples do not stretch the interval.
  for (auto next = std::chrono::steady_clock::now() + options_.interval;
       !wake_.wait_until(lock, next, [this] { return stop_; });
       next = std::max(next + options_.interval, std::chrono::steady_clock::now()))
    sampler.sample();
  sampler.sample();
  sampler.end();
}

ProcessCounters ProcessCounters::read() {
  ProcessCounters counters;
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  counters.cpu_ns = std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  counters.page_faults = usage.ru_minflt + usage.ru_majflt;
  counters.major_page_faults = usage.ru_majflt;
  counters.context_switches = usage.ru_nvcsw;
  counters.preemptions = usage.ru_nivcsw;
  read_files(counters);
  read_interfaces(counters);
  read_infiniband(counters);
  return counters;
}

std::optional<double> resident_mib() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) return std::nullopt;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

}  // namespace farandole

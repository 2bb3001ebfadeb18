#include "farandole/job/run/resource_usage.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <mutex>
#include <sys/resource.h>
#include <thread>

#include "farandole/base/clock.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/job/job.h"
#include "farandole/timeline/counters/gpu_counters.h"

namespace farandole {
namespace {

constexpr std::size_t most_lines = 16;  // Limits a table that people read.

constexpr double no_gpu = std::numeric_limits<double>::quiet_NaN();  // On the way between the ranks.

std::optional<double> known(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

// A column of the table.
struct Column {
  const char* heading;
  int width, digits;
  std::optional<double> (*value)(const ResourceUsage&);
  bool of_gpus = false;
};

constexpr Column columns[] = {
    {"CPU %", 7, 0, [](const ResourceUsage& used) { return std::optional(used.cpu_percent); }},
    {"memory MiB", 11, 0, [](const ResourceUsage& used) { return std::optional(used.memory_mib); }},
    {"read MB", 9, 1, [](const ResourceUsage& used) { return std::optional(used.read_mb); }},
    {"written MB", 10, 1, [](const ResourceUsage& used) { return std::optional(used.written_mb); }},
    {"GPU %", 7, 0, [](const ResourceUsage& used) { return used.gpu_percent; }, true},
    {"GPU memory MiB", 14, 0, [](const ResourceUsage& used) { return used.gpu_memory_mib; }, true}};

std::string cell(const Column& column, std::optional<double> value) {
  if (!value) return fmt::format(" {:>{}}", "-", column.width);
  return fmt::format(" {:>{}.{}f}", *value, column.width, column.digits);
}

// The least, mean and most of a column.
struct Summary {
  std::optional<double> least, mean, most;

  Summary(const Column& column, const std::vector<ResourceUsage>& usage) {
    double sum = 0, count = 0;
    for (const auto& used : usage) {
      const auto value = column.value(used);
      if (!value) continue;
      least = std::min(least.value_or(*value), *value);
      most = std::max(most.value_or(*value), *value);
      sum += *value;
      ++count;
    }
    if (count > 0) mean = sum / count;
  }
};

}  // namespace

// Reads the GPU once per second on a thread, because its driver has the load of the last moment only.
class ResourceMeter::Gpu {
 public:
  explicit Gpu(std::unique_ptr<GpuCounters> counters) : counters_(std::move(counters)) {
    thread_ = start_quiet_thread([this] {
      do read();
      while (stop_.sleep(std::chrono::seconds(1)));
    });
  }
  ~Gpu() {
    stop_.stop();
    thread_.join();
  }

  void add_to(ResourceUsage& usage) {
    read();
    const std::lock_guard lock(mutex_);
    if (samples_ == 0) return;
    usage.gpu_percent = percent_ / samples_;
    usage.gpu_memory_mib = most_mib_;
  }

 private:
  void read() {
    const std::lock_guard lock(mutex_);
    const auto sample = counters_->sample();
    if (!sample) return;
    percent_ += sample->utilization_percent;
    ++samples_;
    most_mib_ = std::max(most_mib_, sample->memory_mib);
  }

  std::unique_ptr<GpuCounters> counters_;
  std::mutex mutex_;
  double percent_ = 0, samples_ = 0, most_mib_ = 0;
  StopEvent stop_;
  std::thread thread_;
};

ResourceMeter::ResourceMeter(Job& job, const std::string& gpu)
    : job_(job), begin_ns_(now_ns()), begin_(ProcessCounters::read()) {
  if (auto counters = GpuCounters::open(gpu)) gpu_ = std::make_unique<Gpu>(std::move(counters));
}

ResourceMeter::~ResourceMeter() = default;

std::vector<ResourceUsage> ResourceMeter::gather() const {
  const auto now = ProcessCounters::read();
  rusage most{};
  ::getrusage(RUSAGE_SELF, &most);
  const auto megabytes = [](const auto& last, const auto& first) {
    return last && first ? static_cast<double>(*last - *first) / 1e6 : 0.0;
  };
  ResourceUsage own{
      .cpu_percent = static_cast<double>(now.cpu_ns - begin_.cpu_ns) / 1e7 / seconds_since(begin_ns_),
      .memory_mib = static_cast<double>(most.ru_maxrss) / 1024,
      .read_mb = megabytes(now.file_read_bytes, begin_.file_read_bytes),
      .written_mb = megabytes(now.file_written_bytes, begin_.file_written_bytes)};
  if (gpu_) gpu_->add_to(own);
  using Values = std::array<double, 6>;
  const Values mine = {own.cpu_percent,
                       own.memory_mib,
                       own.read_mb,
                       own.written_mb,
                       own.gpu_percent.value_or(no_gpu),
                       own.gpu_memory_mib.value_or(no_gpu)};
  std::vector<Values> all(static_cast<std::size_t>(job_.layout().size));
  const std::vector<std::size_t> bytes(all.size(), sizeof mine);
  job_.communicator().all_gather("resources", mine.data(), all.data(), bytes);
  std::vector<ResourceUsage> usage;
  for (const auto& values : all)
    usage.push_back({values[0], values[1], values[2], values[3], known(values[4]), known(values[5])});
  return usage;
}

std::string resource_table(const std::vector<ResourceUsage>& usage, const std::vector<std::string>& hosts) {
  std::vector<Column> shown;
  for (const auto& column : columns)
    if (!column.of_gpus || Summary(column, usage).most) shown.push_back(column);
  auto table = fmt::format("{:>5}  {:<16}", "rank", "host");
  for (const auto& column : shown) table += fmt::format(" {:>{}}", column.heading, column.width);
  table += "\n";
  const auto add = [&](const std::string& rank, const std::string& host, const auto& value) {
    table += fmt::format("{:>5}  {:<16}", rank, host);
    for (const auto& column : shown) table += cell(column, value(column));
    table += "\n";
  };
  if (usage.size() <= most_lines) {
    for (std::size_t rank = 0; rank < usage.size(); ++rank)
      add(std::to_string(rank), hosts[rank], [&](const Column& column) { return column.value(usage[rank]); });
    return table;
  }
  const auto ranks = fmt::format("{} ranks", usage.size());
  add("least", ranks, [&](const Column& column) { return Summary(column, usage).least; });
  add("mean", ranks, [&](const Column& column) { return Summary(column, usage).mean; });
  add("most", ranks, [&](const Column& column) { return Summary(column, usage).most; });
  return table;
}

}  // namespace farandole

#include "farandole/train/resource_usage.h"

#include <algorithm>
#include <fmt/format.h>
#include <sys/resource.h>

#include "farandole/base/clock.h"

namespace farandole {
namespace {

constexpr std::size_t most_lines = 16;  // Of a table that people read.

}  // namespace

ResourceMeter::ResourceMeter() : begin_ns_(now_ns()), begin_(ProcessCounters::read()) {}

std::vector<ResourceUsage> ResourceMeter::gather(Session& session) const {
  const auto now = ProcessCounters::read();
  rusage most{};
  ::getrusage(RUSAGE_SELF, &most);
  const auto megabytes = [](const auto& last, const auto& first) {
    return last && first ? static_cast<double>(*last - *first) / 1e6 : 0.0;
  };
  const double seconds = seconds_since(begin_ns_);
  const auto own = torch::tensor(
      {{static_cast<double>(now.cpu_ns - begin_.cpu_ns) / 1e7 / seconds,
        static_cast<double>(most.ru_maxrss) / 1024, megabytes(now.file_read_bytes, begin_.file_read_bytes),
        megabytes(now.file_written_bytes, begin_.file_written_bytes)}},
      torch::kFloat64);
  const auto all = session.all_gather(own).contiguous();
  std::vector<ResourceUsage> usage;
  for (std::int64_t rank = 0; rank < all.size(0); ++rank) {
    const double* values = all.data_ptr<double>() + 4 * rank;
    usage.push_back({values[0], values[1], values[2], values[3]});
  }
  return usage;
}

std::string resource_table(const std::vector<ResourceUsage>& usage, const std::vector<std::string>& hosts) {
  auto table = fmt::format("{:>5}  {:<16} {:>7} {:>11} {:>9} {:>10}\n", "rank", "host", "CPU %", "memory MiB",
                           "read MB", "written MB");
  const auto add = [&](const std::string& rank, const std::string& host, const ResourceUsage& used) {
    table += fmt::format("{:>5}  {:<16} {:>7.0f} {:>11.0f} {:>9.1f} {:>10.1f}\n", rank, host,
                         used.cpu_percent, used.memory_mib, used.read_mb, used.written_mb);
  };
  if (usage.size() <= most_lines) {
    for (std::size_t rank = 0; rank < usage.size(); ++rank)
      add(std::to_string(rank), hosts[rank], usage[rank]);
    return table;
  }
  ResourceUsage least = usage.front(), sum, most = usage.front();
  for (const auto field : {&ResourceUsage::cpu_percent, &ResourceUsage::memory_mib, &ResourceUsage::read_mb,
                           &ResourceUsage::written_mb}) {
    for (const auto& used : usage) {
      least.*field = std::min(least.*field, used.*field);
      most.*field = std::max(most.*field, used.*field);
      sum.*field += used.*field;
    }
    sum.*field /= static_cast<double>(usage.size());
  }
  const auto ranks = fmt::format("{} ranks", usage.size());
  add("least", ranks, least);
  add("mean", ranks, sum);
  add("most", ranks, most);
  return table;
}

}  // namespace farandole

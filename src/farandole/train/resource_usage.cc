#include "farandole/train/resource_usage.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "farandole/base/clock.h"

namespace farandole {

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
  for (std::size_t rank = 0; rank < usage.size(); ++rank)
    table += fmt::format("{:>5}  {:<16} {:>7.0f} {:>11.0f} {:>9.1f} {:>10.1f}\n", rank, hosts[rank],
                         usage[rank].cpu_percent, usage[rank].memory_mib, usage[rank].read_mb,
                         usage[rank].written_mb);
  return table;
}

}  // namespace farandole

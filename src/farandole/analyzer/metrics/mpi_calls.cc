#include "farandole/analyzer/metrics/mpi_calls.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "farandole/analyzer/statistics/distribution.h"

namespace farandole {

std::vector<MpiCallRow> mpi_call_table(const RunModel& run, Interval window) {
  struct Calls {
    Distribution duration_us;
    double bytes = 0;
  };
  std::map<std::string_view, Calls> functions;
  for (const auto& rank : run.ranks)
    for (const auto& span : rank.collectives()) {
      const std::string_view name = run.names[span.name];
      if (!is_mpi_call(name) || span.start < window.start || span.start > window.end) continue;
      auto& calls = functions[name];
      calls.duration_us.add(static_cast<double>(span.end - span.start) * 1e-3);
      calls.bytes += static_cast<double>(span.what.bytes);
    }
  std::vector<MpiCallRow> rows;
  for (const auto& [name, calls] : functions)
    rows.push_back({std::string(name), calls.duration_us.count(), calls.bytes,
                    calls.duration_us.quantile(0.5), calls.duration_us.sum() * 1e-6});
  std::sort(rows.begin(), rows.end(), [](const MpiCallRow& a, const MpiCallRow& b) {
    return std::tuple(-a.total_s, a.function) < std::tuple(-b.total_s, b.function);
  });
  return rows;
}

}  // namespace farandole

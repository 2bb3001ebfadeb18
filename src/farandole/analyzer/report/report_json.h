// The rows and objects of the JSON report. The tables of all formats are made of them. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include "farandole/analyzer/report/report.h"
#include "farandole/base/text/json.h"

namespace farandole {

inline Json unknown(const std::string& why) {
  return {{"unknown", why}};
}
inline Json json_of(const Figure& figure) {
  return figure.value ? Json(*figure.value) : unknown(figure.unknown);
}
inline Json json_of(const Range& range) {
  return Json::array({range.low, range.high});
}

// Of one run. Those that are named after rows return an array of them.
Json run_json(const RunReport& run);
Json rank_json(const RankMetrics& rank, const RunMetrics& metrics);
Json rank_rows(const RunReport& run);
Json node_rows(const RunReport& run);
Json collective_rows(const RunReport& run);
Json mpi_call_rows(const RunReport& run);
Json kernel_rows(const RunReport& run);
Json copy_rows(const RunReport& run);
Json loss_rows(const RunReport& run);
Json wait_cause_rows(const RunReport& run);
Json straggler_rows(const RunReport& run);
Json finding_rows(const RunReport& run);
Json critical_path_json(const RunReport& run);
Json resource_rows(const RunReport& run);

// Of several runs.
Json scaling_json(const Scaling& scaling);
Json comparison_json(const Report& report);

}  // namespace farandole

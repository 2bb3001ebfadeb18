#include "farandole/analyzer/report/runs_text.h"

#include <fmt/format.h>

#include "farandole/analyzer/report/units.h"

namespace farandole {

std::string scaling_text(const Scaling& scaling, const Style& style) {
  if (!scaling.unknown.empty())
    return "\n" + style.bold("Scaling") + "\n  " + wrapped("unknown: " + scaling.unknown, 2) + "\n";
  const auto detail =
      fmt::format("{}, against {} rank{}",
                  scaling.mode == "weak" ? "weak: same batch per rank" : "strong: same global batch",
                  scaling.base_ranks, scaling.base_ranks == 1 ? "" : "s");
  TextTable table({"ranks", "runs", "step", "efficiency", "95 % interval", "compute scaling"}, 0);
  for (const auto& point : scaling.points)
    table.add({std::to_string(point.ranks), std::to_string(point.runs), time_text(1e3 * point.step_ms),
               percent(point.efficiency) + " %",
               point.ranks == scaling.base_ranks
                   ? "–"
                   : percent(point.ci95.low) + " to " + percent(point.ci95.high) + " %",
               percent(point.compute_scaling)});
  for (const auto& point : scaling.forecast)
    table.add({std::to_string(point.ranks), "forecast", "–", percent(point.efficiency) + " %",
               percent(point.band.low) + " to " + percent(point.band.high) + " %", "–"});
  auto text = "\n" + style.bold("Scaling") + "  " + style.dim(detail) + "\n" + table.text(style);
  if (const auto left_out = left_out_text(scaling); !left_out.empty())
    text += "  " + wrapped(left_out, 2) + "\n";
  if (const auto missing = repeats_text(scaling); !missing.empty()) text += "  " + wrapped(missing, 2) + "\n";
  if (const auto slower = slower_compute_text(scaling); !slower.empty())
    text += "  " + wrapped(slower, 2) + "\n";
  if (!scaling.no_forecast.empty()) {
    text += "  " + wrapped("No forecast: " + scaling.no_forecast + ".", 2) + "\n";
    return text;
  }
  auto law = fmt::format("Forecast by the {} law", scaling.model);
  if (scaling.points.size() >= 4)
    law +=
        fmt::format(" (contention {:.2g}, coherency {:.2g})", scaling.law.contention, scaling.law.coherency);
  else
    law += fmt::format(" (share that does not scale: {} %)",
                       percent(scaling.mode == "strong" ? scaling.law.amdahl : scaling.law.gustafson));
  if (scaling.worth_until_ranks > 0) law += ". " + worth_text(scaling);
  return text + "  " + wrapped(law + ".", 2) + "\n";
}

std::string comparison_text(const Report& report, const Style& style) {
  const auto& comparison = *report.comparison;
  auto text = "\n" + style.bold("Against") + "  " + style.dim(shortened(against_text(report), 90)) + "\n  " +
              wrapped(comparison.verdict, 2) + "\n";
  TextTable table({"figure", "before", "now", "change", "95 % interval", ""}, 1);
  for (const auto& difference : comparison.differences) {
    if (difference.is_nothing()) continue;
    table.add(
        {difference.name, value_text(difference, difference.before), value_text(difference, difference.now),
         difference.change.value ? change_text(difference, *difference.change.value) : "–",
         interval_text(difference),
         difference.ci95 && difference.verdict == Change::same ? "" : std::string(verdict_text(difference))});
  }
  return text + table.text(style);
}

}  // namespace farandole

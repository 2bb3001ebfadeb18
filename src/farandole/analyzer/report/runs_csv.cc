#include "farandole/analyzer/report/runs_csv.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "farandole/analyzer/compare/comparison_text.h"
#include "farandole/analyzer/report/csv_writer.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

Figure low_of(const std::optional<Range>& range) {
  return range ? Figure::known(range->low) : Figure{};
}
Figure high_of(const std::optional<Range>& range) {
  return range ? Figure::known(range->high) : Figure{};
}

}  // namespace

std::string scaling_csv(const Report& report) {
  Csv csv({"ranks", "kind", "runs", "step_ms", "efficiency", "low", "high", "compute_scaling"});
  for (const auto& point : report.scaling.points)
    csv.row(point.ranks, "measured", point.runs, point.step_ms, point.efficiency, point.ci95.low,
            point.ci95.high, point.compute_scaling);
  for (const auto& point : report.scaling.forecast)
    csv.row(point.ranks, "forecast", "", "", point.efficiency, point.band.low, point.band.high, "");
  return csv.take();
}

std::string scaling_fits_csv(const Report& report) {
  Csv csv({"law", "parameter", "value", "low", "high"});
  const auto& scaling = report.scaling;
  if (!scaling.unknown.empty()) return csv.take();
  csv.row("amdahl", "serial", scaling.law.amdahl, scaling.amdahl.low, scaling.amdahl.high);
  csv.row("gustafson", "serial", scaling.law.gustafson, scaling.gustafson.low, scaling.gustafson.high);
  csv.row("usl", "contention", scaling.law.contention, scaling.contention.low, scaling.contention.high);
  csv.row("usl", "coherency", scaling.law.coherency, scaling.coherency.low, scaling.coherency.high);
  return csv.take();
}

std::string comparison_csv(const Report& report) {
  if (!report.comparison && report.no_comparison.empty())
    throw UserError("--table comparison needs --against RUN");
  Csv csv({"figure", "relative", "before", "now", "change", "low", "high", "verdict"});
  if (!report.comparison) return csv.take();
  for (const auto& difference : report.comparison->differences)
    csv.row(difference.name, difference.relative ? 1 : 0, difference.before, difference.now,
            difference.change, low_of(difference.ci95), high_of(difference.ci95), verdict_text(difference));
  return csv.take();
}

std::string what_if_csv(const Report& report) {
  Csv csv({"run", "scenario", "step_ms", "low", "high", "change", "mean_step_ms", "mean_change",
           "throughput_samples_per_s", "notes", "unknown"});
  bool any = false;
  for (const auto& run : report.runs)
    for (const auto& prediction : run.what_if) {
      any = true;
      const bool known = prediction.unknown.empty();
      csv.cell(run.path.string()).cell(prediction.scenario.text);
      for (const double value : {prediction.step_ms, prediction.band.low, prediction.band.high,
                                 prediction.change, prediction.mean_step_ms, prediction.mean_change})
        csv.cell(known ? Figure::known(value) : Figure{});
      csv.row(prediction.throughput, fmt::format("{}", fmt::join(prediction.notes, "; ")),
              prediction.unknown);
    }
  if (!any) throw UserError("--table what-if needs --what-if CONDITIONS");
  return csv.take();
}

std::string validation_csv(const Report& report) {
  if (report.validations.empty()) throw UserError("--table validation needs --validate RUN");
  Csv csv({"base", "run", "scenario", "predicted_ms", "predicted_low_ms", "predicted_high_ms", "measured_ms",
           "measured_low_ms", "measured_high_ms", "error", "unknown"});
  for (const auto& validation : report.validations)
    for (const auto& run : validation.runs) {
      csv.cell(validation.base.string()).cell(run.path.string()).cell(run.scenario.text);
      for (const double value : {run.predicted_ms, run.band.low, run.band.high, run.measured_ms,
                                 run.measured_ci95.low, run.measured_ci95.high, run.error})
        csv.cell(run.unknown.empty() ? Figure::known(value) : Figure{});
      csv.row(run.unknown);
    }
  return csv.take();
}

}  // namespace farandole

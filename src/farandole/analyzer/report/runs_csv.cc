#include "farandole/analyzer/report/runs_csv.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "farandole/analyzer/report/csv_writer.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

void range(Csv& csv, const std::optional<Range>& range) {
  csv.cell(range ? Figure::known(range->low) : Figure{}).cell(range ? Figure::known(range->high) : Figure{});
}

}  // namespace

std::string scaling_csv(const Report& report) {
  Csv csv({"ranks", "kind", "runs", "step_ms", "efficiency", "low", "high", "compute_scaling"});
  for (const auto& point : report.scaling.points)
    csv.cell(point.ranks)
        .cell(std::string("measured"))
        .cell(point.runs)
        .cell(point.step_ms)
        .cell(point.efficiency)
        .cell(point.ci95.low)
        .cell(point.ci95.high)
        .cell(point.compute_scaling)
        .end();
  for (const auto& point : report.scaling.forecast)
    csv.cell(point.ranks)
        .cell(std::string("forecast"))
        .cell(std::string())
        .cell(std::string())
        .cell(point.efficiency)
        .cell(point.band.low)
        .cell(point.band.high)
        .cell(std::string())
        .end();
  return csv.take();
}

std::string scaling_fits_csv(const Report& report) {
  Csv csv({"law", "parameter", "value", "low", "high"});
  const auto& scaling = report.scaling;
  if (!scaling.unknown.empty()) return csv.take();
  const auto row = [&](const char* law, const char* parameter, double value, const Range& interval) {
    csv.cell(std::string(law)).cell(std::string(parameter)).cell(value);
    range(csv, interval);
    csv.end();
  };
  row("amdahl", "serial", scaling.law.amdahl, scaling.amdahl);
  row("gustafson", "serial", scaling.law.gustafson, scaling.gustafson);
  row("usl", "contention", scaling.law.contention, scaling.contention);
  row("usl", "coherency", scaling.law.coherency, scaling.coherency);
  return csv.take();
}

std::string comparison_csv(const Report& report) {
  if (!report.comparison && report.no_comparison.empty())
    throw UserError("--table comparison needs --against RUN");
  Csv csv({"figure", "relative", "before", "now", "change", "low", "high", "verdict"});
  if (!report.comparison) return csv.take();
  for (const auto& difference : report.comparison->differences) {
    csv.cell(difference.name).cell(difference.relative ? 1 : 0).cell(difference.before).cell(difference.now);
    csv.cell(difference.change);
    range(csv, difference.ci95);
    csv.cell(std::string(verdict_text(difference))).end();
  }
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
      csv.cell(prediction.throughput).cell(fmt::format("{}", fmt::join(prediction.notes, "; ")));
      csv.cell(prediction.unknown).end();
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
      csv.cell(run.unknown).end();
    }
  return csv.take();
}

}  // namespace farandole

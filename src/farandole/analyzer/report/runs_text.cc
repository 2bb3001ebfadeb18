#include "farandole/analyzer/report/runs_text.h"

#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/analyzer/compare/comparison_text.h"
#include "farandole/analyzer/report/units.h"

namespace farandole {
namespace {

std::string line_text(const CostModel::Line& line) {
  const auto bytes = line.beta_ns > 0 ? fmt::format("plus its bytes at {:.2f} GB/s", 1 / line.beta_ns)
                                      : std::string("for any number of bytes");
  return fmt::format("{} {}", time_text(line.alpha_ns * 1e-3), bytes);
}

std::string costs_text(const StepGraph& graph) {
  const auto& part = graph.part;
  if (graph.buckets.empty()) return "";
  if (!part.known()) return "The cost of transfers is unknown: " + part.unknown + ".";
  auto text = fmt::format("A bucket costs each rank {}", line_text(part.line));
  if (part.split_bytes > 0)
    text += fmt::format(", and from {} on {}", size_text(part.split_bytes), line_text(part.beyond));
  text += fmt::format(" ({} transfers of {} size{}, typical error {:.0f} %)",
                      with_thousands(static_cast<double>(part.samples)), part.sizes,
                      part.sizes == 1 ? "" : "s", 100 * part.spread);
  if (graph.wake_ns > 0)
    text += fmt::format(", and {} to continue after a wait", time_text(graph.wake_ns * 1e-3));
  return text + ".";
}

std::string prediction_text(const Prediction& prediction) {
  if (!prediction.unknown.empty()) return prediction.scenario.text + " → unknown: " + prediction.unknown;
  auto text = fmt::format("{} → step {:.2f} ms ({}, band {:.2f} to {:.2f})", prediction.scenario.text,
                          prediction.step_ms, signed_percent(prediction.change), prediction.band.low,
                          prediction.band.high);
  if (std::abs(prediction.mean_change - prediction.change) > 0.005)
    text += fmt::format(", mean over all {:.2f} ms ({})", prediction.mean_step_ms,
                        signed_percent(prediction.mean_change));
  if (prediction.throughput.value)
    text += fmt::format(", {} samples/s", with_thousands(*prediction.throughput.value));
  if (!prediction.notes.empty()) text += fmt::format("; {}", fmt::join(prediction.notes, "; "));
  return text;
}

}  // namespace

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

std::string what_if_text(const Replay& replay, const std::vector<Prediction>& predictions,
                         const Style& style) {
  std::string text = "\n" + style.bold("What if");
  if (replay.known()) {
    text += "  " +
            style.dim(fmt::format("measured median step {:.2f} ms; the unchanged replay gives {}, which is "
                                  "corrected for",
                                  replay.measured_ms, signed_percent(replay.error)));
  }
  text += "\n";
  for (const auto& prediction : predictions) text += "  " + wrapped(prediction_text(prediction), 4) + "\n";
  if (!replay.known()) return text;
  auto notes = costs_text(replay.graph);
  for (const auto& note : replay.graph.notes) notes += (notes.empty() ? "" : " ") + ("Note: " + note + ".");
  if (!notes.empty()) text += "  " + style.dim(wrapped(notes, 2)) + "\n";
  return text;
}

std::string validation_text(const Validation& validation, const Style& style) {
  TextTable table({"run", "what if", "predicted", "measured", "95 % interval", "error"}, 2);
  std::string problems;
  for (const auto& run : validation.runs) {
    const auto what = run.scenario.text.empty() ? std::string("unchanged") : run.scenario.text;
    if (!run.unknown.empty()) {
      problems +=
          "  " + wrapped(fmt::format("{} ({}): unknown: {}", run.path.string(), what, run.unknown), 4) + "\n";
      continue;
    }
    table.add({shortened(run.path.string(), 30), shortened(what, 26), time_text(1e3 * run.predicted_ms),
               time_text(1e3 * run.measured_ms),
               fmt::format("{:.2f} to {:.2f}", run.measured_ci95.low, run.measured_ci95.high),
               signed_percent(run.error)});
  }
  auto text = "\n" + style.bold("Validation") + "  " +
              style.dim(fmt::format("median steps of runs, predicted from {}",
                                    shortened(validation.base.string(), 50))) +
              "\n";
  if (validation.median_error)
    text += table.text(style) + fmt::format("  errors: median {:.1f} %, 95 % of them within {:.1f} %\n",
                                            100 * *validation.median_error, 100 * *validation.p95_error);
  return text + problems;
}

}  // namespace farandole

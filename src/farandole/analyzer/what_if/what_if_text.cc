#include "farandole/analyzer/what_if/what_if_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/analyzer/findings/verdict.h"
#include "farandole/analyzer/report/units.h"

namespace farandole {
namespace {

std::string signed_percent(double fraction) {
  return fmt::format("{}{:.1f} %", fraction < 0 ? "−" : "+", 100 * std::abs(fraction));
}

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

std::string what_if_text(const Replay& replay, const std::vector<Prediction>& predictions,
                         const Style& style) {
  std::string text = "\n" + style.bold("What if");
  if (replay.known()) {
    text += "  " + style.dim(fmt::format(
                       "measured median step {:.2f} ms; the replay without changes gives {}, which is "
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

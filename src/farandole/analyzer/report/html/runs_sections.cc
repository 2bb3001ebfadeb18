#include "farandole/analyzer/report/html/runs_sections.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/analyzer/compare/comparison_text.h"
#include "farandole/analyzer/report/html/charts.h"
#include "farandole/analyzer/report/html/page.h"
#include "farandole/analyzer/report/html/svg.h"
#include "farandole/analyzer/report/text_table.h"
#include "farandole/analyzer/report/units.h"

namespace farandole::html {
namespace {

std::string ms(double value) {
  return time_text(1e3 * value);
}

std::string note(const std::string& text) {
  return "<li>" + escaped(text) + "</li>";
}
std::string list(const std::string& notes) {
  return notes.empty() ? "" : "<ul class=\"notes\">" + notes + "</ul>";
}

// One bar with its band per row. The first row is the reference for the others.
struct Bar {
  std::string name;
  double ms = 0;
  Range band{};
  std::string tip;
};

std::string bars_chart(const std::vector<Bar>& bars, std::string_view label) {
  constexpr double left = 300, right = 780, row_height = 30;
  double most = 1e-9;
  for (const auto& bar : bars) most = std::max({most, bar.ms, bar.band.high});
  const Axis x{0, most * 1.05, left, right};
  const double bottom = 8 + row_height * static_cast<double>(bars.size());
  Svg svg(chart_width, bottom + 26, label);
  for (const double tick : ticks(0, x.high, 6)) {
    svg.line(x.at(tick), 4, x.at(tick), bottom, "grid");
    svg.text(x.at(tick), bottom + 16, Anchor::middle, time_tick(1e3 * tick), "small");
  }
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const auto& bar = bars[i];
    const double y = 6 + row_height * static_cast<double>(i);
    svg.text(left - 12, y + 19, Anchor::end, shortened(bar.name, 42), i == 0 ? "strong" : "");
    svg.rect(left, y + 5, x.at(bar.ms) - left, row_height - 10, i == 0 ? "f-other" : "f-forward", bar.tip);
    if (bar.band.high > bar.band.low)
      svg.line(x.at(bar.band.low), y + row_height / 2, x.at(bar.band.high), y + row_height / 2, "whisker");
    svg.text(right + 12, y + 19, Anchor::start, bar.tip, i == 0 ? "strong" : "");
  }
  svg.line(x.at(bars.front().ms), 4, x.at(bars.front().ms), bottom, "mark");
  return svg.finish();
}

}  // namespace

std::string scaling_section(const Scaling& scaling) {
  if (!scaling.unknown.empty()) return section("Scaling", "Unknown: " + scaling.unknown + ".", " ");
  Table table({"ranks", "runs", "step", "efficiency", "95 % interval", "compute scaling"}, 0);
  for (const auto& point : scaling.points)
    table.add({std::to_string(point.ranks), std::to_string(point.runs), ms(point.step_ms),
               percent_text(point.efficiency),
               percent_text(point.ci95.low) + " to " + percent_text(point.ci95.high),
               percent(point.compute_scaling)});
  for (const auto& point : scaling.forecast)
    table.add({std::to_string(point.ranks), "forecast", "–", percent_text(point.efficiency),
               percent_text(point.band.low) + " to " + percent_text(point.band.high), "–"});
  auto sub = fmt::format("{} scaling against {} rank{}.",
                         scaling.mode == "weak" ? "Weak (same batch per rank)" : "Strong (same global batch)",
                         scaling.base_ranks, scaling.base_ranks == 1 ? "" : "s");
  if (!scaling.no_forecast.empty()) sub += " No forecast: " + scaling.no_forecast + ".";
  for (const auto& sentence : {left_out_text(scaling), repeats_text(scaling), slower_compute_text(scaling)})
    sub += " " + sentence;
  if (scaling.worth_until_ranks > 0) sub += " " + worth_text(scaling) + ".";
  return section("Scaling", sub, scaling_chart(scaling) + table.finish());
}

std::string comparison_section(const Report& report) {
  const auto& comparison = *report.comparison;
  Table table({"figure", "before", "now", "change", "95 % interval", "verdict"}, 1);
  for (const auto& difference : comparison.differences) {
    if (difference.is_nothing()) continue;
    table.add({difference.name, value_text(difference, difference.before),
               value_text(difference, difference.now),
               difference.change.value ? change_text(difference, *difference.change.value) : "–",
               interval_text(difference), std::string(verdict_text(difference))});
  }
  return section("Against " + against_text(report), comparison.verdict, table.finish());
}

std::string what_if_section(const RunReport& run) {
  if (run.what_if.empty() || !run.replay) return "";
  const auto& replay = *run.replay;
  if (!replay.known()) return section("What if", "Unknown: " + replay.graph.unknown + ".", " ");
  std::vector<Bar> bars = {{"unchanged", replay.measured_ms, replay.measured_ci95, ms(replay.measured_ms)}};
  Table table({"what if", "step", "band", "change", "mean step", "samples/s"}, 1);
  std::string notes;
  for (const auto& prediction : run.what_if) {
    const auto& name = prediction.scenario.text;
    if (!prediction.unknown.empty()) {
      table.add({name, "unknown", "–", "–", "–", "–"});
      notes += note(name + ": unknown: " + prediction.unknown);
      continue;
    }
    bars.push_back({name, prediction.step_ms, prediction.band,
                    ms(prediction.step_ms) + " (" + signed_percent(prediction.change) + ")"});
    table.add({name, ms(prediction.step_ms), ms(prediction.band.low) + " to " + ms(prediction.band.high),
               signed_percent(prediction.change), ms(prediction.mean_step_ms),
               prediction.throughput.value ? with_thousands(*prediction.throughput.value) : "–"});
    if (!prediction.notes.empty())
      notes += note(fmt::format("{}: {}", name, fmt::join(prediction.notes, "; ")));
  }
  const auto sub = fmt::format(
      "The predicted median step of this run under other conditions. The replay without changes gives {}; "
      "predictions are corrected by the difference. Lines are bands.",
      signed_percent(replay.error));
  for (const auto& text : replay.graph.notes) notes += note(text);
  return section(
      "What if", sub,
      (bars.size() > 1 ? bars_chart(bars, "Median step unchanged and under other conditions") : "") +
          table.finish() + list(notes));
}

std::string validation_section(const Report& report) {
  std::string content, notes;
  for (const auto& validation : report.validations) {
    Table table({"run", "what if", "predicted", "band", "measured", "95 % interval", "error"}, 2);
    for (const auto& run : validation.runs) {
      const auto what = run.scenario.text.empty() ? std::string("unchanged") : run.scenario.text;
      if (run.unknown.empty())
        table.add({run.path.string(), what, ms(run.predicted_ms),
                   ms(run.band.low) + " to " + ms(run.band.high), ms(run.measured_ms),
                   ms(run.measured_ci95.low) + " to " + ms(run.measured_ci95.high),
                   signed_percent(run.error)});
      else
        notes += note(fmt::format("{} ({}): unknown: {}", run.path.string(), what, run.unknown));
    }
    content += fmt::format(
        "<p class=\"sub\">From {}, whose median step {}{}.</p>", escaped(validation.base.string()),
        validation.base_ms.value ? "takes " + ms(*validation.base_ms.value)
                                 : "is unknown (" + escaped(validation.base_ms.unknown) + ")",
        validation.median_error
            ? fmt::format(": the median error is {:.1f} %, and 95 % of the errors are within {:.1f} %",
                          100 * *validation.median_error, 100 * *validation.p95_error)
            : ": no run could be predicted");
    content += table.finish();
  }
  return section("Validation", "The median steps of measured runs, and how other runs predict them.",
                 content.empty() ? "" : content + list(notes));
}

}  // namespace farandole::html

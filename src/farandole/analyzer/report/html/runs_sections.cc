#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/analyzer/report/formatting.h"
#include "farandole/analyzer/report/html/charts.h"
#include "farandole/analyzer/report/html/svg.h"

namespace farandole::html {
namespace {

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
  svg.columns(x, ticks(0, x.high, 6), 4, bottom, bottom + 16, ms_tick);
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
  auto sub = fmt::format("{} scaling against {} rank{}.",
                         scaling.mode == "weak" ? "Weak (same batch per rank)" : "Strong (same global batch)",
                         scaling.base_ranks, scaling.base_ranks == 1 ? "" : "s");
  for (const auto& sentence :
       {left_out_text(scaling), repeats_text(scaling), slower_compute_text(scaling), forecast_text(scaling)})
    sub += " " + sentence;
  return section("Scaling", sub, scaling_chart(scaling) + table_of(scaling_table(scaling)));
}

std::string comparison_section(const Report& report) {
  return section("Against " + against_text(report), report.comparison->verdict,
                 table_of(comparison_table(*report.comparison)));
}

std::string what_if_section(const RunReport& run) {
  if (run.what_if.empty() || !run.replay) return "";
  const auto& replay = *run.replay;
  if (!replay.known()) return section("What if", "Unknown: " + replay.graph.unknown + ".", " ");
  std::vector<Bar> bars = {
      {"unchanged", replay.measured_ms, replay.measured_ci95, ms_text(replay.measured_ms)}};
  Table table{{{"what if", "/scenario"},
               {"step", "/step_ms", as(ms_text), 0, false, "unknown"},
               {"band", "/band_ms", ms_range_text},
               {"change", "/change_percent", as(signed_percent, 0.01)},
               {"mean step", "/mean_step_ms", as(ms_text)},
               {"samples/s", "/throughput_samples_per_s",
                [](const Json& rate) { return with_thousands(rate.get<double>()); }}},
              1,
              Json::array()};
  std::string notes;
  for (const auto& prediction : run.what_if) {
    const auto& name = prediction.scenario.text;
    table.rows.push_back(prediction_json(prediction));
    if (!prediction.unknown.empty()) {
      notes += note(name + ": unknown: " + prediction.unknown);
      continue;
    }
    bars.push_back({name, prediction.step_ms, prediction.band,
                    ms_text(prediction.step_ms) + " (" + signed_percent(prediction.change) + ")"});
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
          table_of(table) + list(notes));
}

std::string validation_section(const Report& report) {
  std::string content, notes;
  for (const auto& validation : report.validations) {
    for (const auto& run : validation.runs)
      if (!run.unknown.empty()) notes += note(run.why_not());
    content += fmt::format(
        "<p class=\"sub\">From {}, whose median step {}{}.</p>", escaped(validation.base.string()),
        validation.base_ms.value ? "takes " + ms_text(*validation.base_ms.value)
                                 : "is unknown (" + escaped(validation.base_ms.unknown) + ")",
        validation.median_error
            ? fmt::format(": the median error is {:.1f} %, and 95 % of the errors are within {:.1f} %",
                          100 * *validation.median_error, 100 * *validation.p95_error)
            : ": no run could be predicted");
    content += table_of(validation_table(validation));
  }
  return section("Validation", "The median steps of measured runs, and how other runs predict them.",
                 content.empty() ? "" : content + list(notes));
}

}  // namespace farandole::html

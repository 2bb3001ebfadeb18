// Charts over steps: distribution of step times, step time and overlap over the run, the map of lateness.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <optional>

#include "farandole/analyzer/report/html/charts.h"
#include "farandole/analyzer/report/html/svg.h"
#include "farandole/analyzer/report/units.h"

namespace farandole::html {
namespace {

constexpr double plot_left = 80, plot_right = 940;
constexpr std::size_t most_columns = 430;

const Axis plot_width{0, 1, plot_left, plot_right};  // Only its positions are used.

void step_axis(Svg& svg, const RunMetrics& metrics, double y) {
  const auto steps = static_cast<double>(metrics.window.steps.size());
  const Axis axis{0, steps, plot_left, plot_right};
  for (const double tick : ticks(0, steps, 8))
    svg.text(axis.at(tick), y, Anchor::middle, fmt::format("{:.0f}", tick), "small");
  svg.text(plot_right, y + 18, Anchor::end, "step of the window", "small");
}

// Lowest, mean and highest known value of a group of neighbouring steps. At most
// most_columns groups are drawn.
struct StepGroup {
  double low = 0, mean = 0, high = 0;
};
using Values = std::vector<std::optional<double>>;

std::vector<std::optional<StepGroup>> columns_of(const Values& values) {
  const auto size = (values.size() + most_columns - 1) / most_columns;
  std::vector<std::optional<StepGroup>> columns;
  for (std::size_t i = 0; i < values.size(); i += size) {
    std::vector<double> known;
    for (auto j = i; j < std::min(values.size(), i + size); ++j)
      if (values[j]) known.push_back(*values[j]);
    auto& column = columns.emplace_back();
    if (known.empty()) continue;
    const auto [low, high] = std::minmax_element(known.begin(), known.end());
    column = StepGroup{*low, mean(known), *high};
  }
  return columns;
}

// The curve has gaps where values are unknown.
void curve(Svg& svg, const Values& values, const Axis& y) {
  const auto columns = columns_of(values);
  const Axis x{0, static_cast<double>(columns.size()), plot_left, plot_right};
  for (std::size_t i = 0; i < columns.size();) {
    std::string middle, band, back;
    const auto begin = i;
    for (; i < columns.size() && columns[i]; ++i) {
      const auto at = number(x.at(static_cast<double>(i) + 0.5));
      const char* const verb = i == begin ? "M" : "L";
      middle += fmt::format("{}{} {}", verb, at, number(y.at(columns[i]->mean)));
      band += fmt::format("{}{} {}", verb, at, number(y.at(columns[i]->high)));
      back = fmt::format("L{} {}", at, number(y.at(columns[i]->low))) + back;
    }
    if (i == begin + 1)
      svg.circle(x.at(static_cast<double>(begin) + 0.5), y.at(columns[begin]->mean), 3, "f-backward");
    if (i > begin && columns.size() < values.size()) svg.path(band + back + "Z", "band");
    if (i > begin) svg.path(middle, "curve");
    if (i == begin) ++i;
  }
}

}  // namespace

std::string step_distribution_chart(const RunMetrics& metrics) {
  const auto& values = metrics.window.step_ms;
  if (values.size() < 2) return "";
  const double low = quantile(values, 0);
  const double cut = quantile(values, 0.995);
  const double median = quantile(values, 0.5);
  const double high = std::max({cut, median * 1.02, low + 1e-6});
  const auto bins = std::clamp<std::size_t>(
      static_cast<std::size_t>(2 * std::sqrt(static_cast<double>(values.size()))), 8, 60);
  std::vector<double> counts(bins);
  std::size_t beyond = 0;
  for (const double value : values) {
    if (value > high)
      ++beyond;
    else
      ++counts[std::min(bins - 1,
                        static_cast<std::size_t>((value - low) / (high - low) * static_cast<double>(bins)))];
  }
  Svg svg(chart_width, 250, "Distribution of step times");
  const Axis x{low, high, plot_left, plot_right};
  const Axis y{0, *std::max_element(counts.begin(), counts.end()), 200, 30};
  svg.rows(y, ticks(0, y.high, 4), plot_width, [](double tick) { return fmt::format("{:.0f}", tick); });
  const double bin_width = (plot_right - plot_left) / static_cast<double>(bins);
  for (std::size_t i = 0; i < bins; ++i) {
    const double from = low + (high - low) * static_cast<double>(i) / static_cast<double>(bins);
    if (counts[i] > 0)
      svg.rect(plot_left + bin_width * static_cast<double>(i) + 0.5, y.at(counts[i]), bin_width - 1,
               200 - y.at(counts[i]), "f-forward",
               fmt::format("{} steps from {} on", counts[i], ms_tick(from)));
  }
  svg.line(plot_left, 200, plot_right, 200, "axis");
  const auto mark = [&](double value, const std::string& name, double text_y, Anchor anchor) {
    svg.line(x.at(value), 18, x.at(value), 200, "mark");
    svg.text(x.at(value) + (anchor == Anchor::end ? -5 : 5), text_y, anchor, name + " " + ms_tick(value),
             "strong");
  };
  mark(median, "median", 16, median > (low + high) / 2 ? Anchor::end : Anchor::start);
  if (quantile(values, 0.95) < high)
    mark(quantile(values, 0.95), "p95", 34,
         quantile(values, 0.95) > (low + 2 * high) / 3 ? Anchor::end : Anchor::start);
  for (const double tick : ticks(low, high, 8))
    svg.text(x.at(tick), 218, Anchor::middle, ms_tick(tick), "small");
  svg.text(plot_left - 8, 16, Anchor::end, "steps", "small");
  if (beyond > 0)
    svg.text(plot_right, 240, Anchor::end,
             fmt::format("{} longer step{} not shown, the longest {}", beyond, beyond == 1 ? "" : "s",
                         ms_tick(quantile(values, 1))),
             "small");
  return svg.finish();
}

std::string steps_chart(const RunMetrics& metrics) {
  if (metrics.window.steps.size() < 2) return "";
  Values overlap;
  for (const auto& step : metrics.steps)
    overlap.push_back(step.communication > 0 ? std::optional(step.overlap / step.communication)
                                             : std::nullopt);
  const bool known =
      metrics.overlap.value.has_value() &&
      std::any_of(overlap.begin(), overlap.end(), [](const auto& one) { return one.has_value(); });
  Svg svg(chart_width, known ? 370 : 210,
          known ? "Step time and overlap over the run" : "Step time over the run");
  const auto& times = metrics.window.step_ms;
  const Axis time_axis{0, std::max(1e-6, quantile(times, 0.99) * 1.15), 160, 20};
  svg.rows(time_axis, ticks(0, time_axis.high, 4), plot_width, ms_tick);
  svg.text(plot_left, 12, Anchor::start, "step time", "strong");
  curve(svg, Values(times.begin(), times.end()), time_axis);
  double bottom = 160;
  if (known) {
    const Axis overlap_axis{0, 1, 320, 210};
    svg.rows(overlap_axis, ticks(0, 1, 4), plot_width, percent_tick);
    svg.text(plot_left, 200, Anchor::start, "overlap: share of communication during compute", "strong");
    curve(svg, overlap, overlap_axis);
    bottom = 320;
  }
  step_axis(svg, metrics, bottom + 18);
  return svg.finish();
}

// If several ranks or steps share a pixel, the highest lateness is shown.
std::string lateness_map(const RunMetrics& metrics) {
  const auto steps = metrics.window.steps.size();
  if (metrics.ranks.size() < 2 || steps < 2) return "";
  const auto rows = rank_rows(metrics, 128);
  const auto per_column = (steps + most_columns - 1) / most_columns;
  const auto columns = (steps + per_column - 1) / per_column;
  std::vector<double> late(rows.size() * columns);
  std::vector<double> all;
  for (std::size_t y = 0; y < rows.size(); ++y)
    for (const auto index : rows[y].ranks) {
      const auto& rank = metrics.ranks[index];
      for (std::size_t i = 0; i < rank.lateness_steps.size(); ++i) {
        auto& place = late[y * columns + rank.lateness_steps[i] / per_column];
        place = std::max(place, rank.step_lateness_ms[i]);
      }
    }
  for (const double ms : late)
    if (ms > 0) all.push_back(ms);
  if (all.empty()) return "";
  const double most = std::max(quantile(all, 0.995), 1e-9);
  std::vector<std::uint8_t> strengths;
  for (const double ms : late)
    strengths.push_back(static_cast<std::uint8_t>(std::lround(255 * std::sqrt(std::min(1.0, ms / most)))));

  const double row_height = std::clamp(340.0 / static_cast<double>(rows.size()), 4.0, 26.0);
  const double height = row_height * static_cast<double>(rows.size());
  Svg svg(chart_width, height + 80, "Lateness of each rank in each step");
  svg.rect(plot_left, 8, plot_right - plot_left, height, "box");
  svg.raw(fmt::format(
      R"(<image class="map" x="{}" y="8" width="{}" height="{}" preserveAspectRatio="none" href="{}" )"
      R"(data-rows="{}" data-columns="{}" data-per="{}" data-most="{}" data-values="{}"/>)",
      plot_left, plot_right - plot_left, number(height),
      png_address(columns, rows.size(), strengths, 0xD55E00), rows.size(), columns, per_column, most,
      base64({reinterpret_cast<const char*>(strengths.data()), strengths.size()})));
  const auto every = std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(13 / row_height)));
  for (std::size_t y = 0; y < rows.size(); y += every)
    svg.text(plot_left - 8, 8 + row_height * (static_cast<double>(y) + 0.5) + 4, Anchor::end,
             rows[y].name.substr(0, rows[y].name.find(' ')), "small");
  svg.text(plot_left - 8, height + 26, Anchor::end, "rank", "small");
  step_axis(svg, metrics, height + 26);
  svg.raw(
      "<defs><linearGradient id=\"late\"><stop stop-color=\"#D55E00\" stop-opacity=\"0\"/>"
      "<stop offset=\"1\" stop-color=\"#D55E00\"/></linearGradient></defs>");
  svg.raw(fmt::format(R"svg(<rect x="140" y="{}" width="200" height="12" fill="url(#late)"/>)svg",
                      number(height + 44)));
  svg.text(132, height + 55, Anchor::end, "on time", "small");
  svg.text(348, height + 55, Anchor::start, ms_tick(most) + " late, or more", "small");
  return svg.finish();
}

}  // namespace farandole::html

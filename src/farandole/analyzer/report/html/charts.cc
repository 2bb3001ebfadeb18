#include "farandole/analyzer/report/html/charts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <optional>

#include "farandole/analyzer/report/formatting.h"
#include "farandole/analyzer/report/html/svg.h"

namespace farandole::html {
namespace {

constexpr std::size_t most_rows = 64;

struct Part {
  std::string name;
  std::string colour;  // CSS class.
  double fraction = 0;
};

// Stacked bars, one per row, with a scale in percent and a legend.
class StackedBars {
 public:
  StackedBars(std::size_t rows, std::string_view label, const std::vector<Part>& legend)
      : row_height_(rows > 24 ? 14 : 24),
        svg_(chart_width, 64 + row_height_ * static_cast<double>(rows), label) {
    double x = left;
    for (const auto& part : legend) {
      svg_.rect(x, 4, 12, 12, part.colour);
      svg_.text(x + 17, 15, Anchor::start, part.name);
      x += 36 + 7 * static_cast<double>(part.name.size());
    }
    bottom_ = 30 + row_height_ * static_cast<double>(rows);
    svg_.columns({0, 1, place(0), place(1)}, {0, 0.2, 0.4, 0.6, 0.8, 1}, 26, bottom_ + 4, bottom_ + 20,
                 percent_tick);
  }

  void add(const RankRow& row, const std::vector<Part>& parts) {
    const double y = 30 + row_height_ * static_cast<double>(next_++);
    svg_.text(left - 10, y + row_height_ / 2 + 4, Anchor::end, row.name, row_height_ < 20 ? "small" : "");
    double from = 0;
    for (const auto& part : parts) {
      if (part.fraction > 0)
        svg_.rect(place(from), y + 2, place(from + part.fraction) - place(from), row_height_ - 4, part.colour,
                  fmt::format("{}: {} {}", row.name, part.name, percent_text(part.fraction)));
      from += part.fraction;
    }
  }

  std::string finish() { return svg_.finish(); }

 private:
  static constexpr double left = 150;
  static double place(double fraction) { return left + fraction * (chart_width - left - 20); }

  double row_height_;
  Svg svg_;
  double bottom_ = 0;
  std::size_t next_ = 0;
};

double mean_of(const RankRow& row, const RunMetrics& metrics, auto part) {
  double sum = 0;
  for (const auto index : row.ranks) sum += static_cast<double>(part(metrics.ranks[index]));
  return sum / static_cast<double>(row.ranks.size()) / metrics.window_ns();
}

void box(Svg& svg, double x, double y, double box_width, const std::string& name, const Figure& figure,
         const std::string& meaning) {
  const double value = std::clamp(figure.value.value_or(0), 0.0, 1.0);
  svg.rect(x, y, box_width, 62, "box");
  svg.rect(x, y + 58, box_width * value, 4, "f-forward");
  svg.text(x + 12, y + 24, Anchor::start, name, "strong");
  svg.text(x + box_width - 12, y + 24, Anchor::end, figure.value ? percent_text(*figure.value) : "unknown",
           "strong");
  svg.text(x + 12, y + 45, Anchor::start,
           shortened(figure.value ? meaning : figure.unknown, static_cast<std::size_t>(box_width / 6.2)),
           "small");
}

}  // namespace

std::vector<RankRow> rank_rows(const RunMetrics& metrics, std::size_t most) {
  const auto count = metrics.ranks.size();
  const auto size = (count + most - 1) / most;
  std::vector<RankRow> rows;
  for (std::size_t first = 0; first < count; first += size) {
    RankRow row;
    for (auto i = first; i < std::min(count, first + size); ++i) row.ranks.push_back(i);
    const auto& begin = metrics.ranks[first];
    const auto& end = metrics.ranks[row.ranks.back()];
    row.name = size == 1 ? fmt::format("{} {}", begin.rank, shortened(begin.host, 14))
                         : fmt::format("{} to {}", begin.rank, end.rank);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string waterfall_chart(const RunReport& run) {
  constexpr double left = 300, right = 720, row_height = 28;
  std::vector<Loss> shown;
  double small = 0;
  for (const auto& [share, name, fraction, hours, parts] : group_losses(run.losses)) {
    if (fraction >= 0.001)
      shown.push_back({share, parts.size() == 1 ? parts.front().name : name, fraction, hours});
    else
      small += fraction;
  }
  if (small > 0.0005) shown.push_back({Share::other, "other losses, each below 0.1 %", small, 0});
  const double useful = run.metrics.parallel_efficiency.value.value_or(0);
  // If the losses are small, the scale does not begin at 0, so that the losses are visible.
  const Axis axis{useful > 0.5 ? std::floor(useful * 20 - 1) / 20 : 0, 1, left, right};
  Svg svg(chart_width, 44 + row_height * static_cast<double>(shown.size() + 2),
          "From all of the ranks' time down to useful compute");
  const double bottom = 8 + row_height * static_cast<double>(shown.size() + 2);
  svg.columns(axis, ticks(axis.low, 1, 6), 4, bottom, bottom + 16, percent_tick);
  if (axis.low > 0)
    svg.text(left, bottom + 32, Anchor::start, fmt::format("the scale begins at {:.0f} %", 100 * axis.low),
             "small");
  const double hours = run.metrics.hours();
  double y = 6;
  const auto row = [&](const std::string& name, double from, double to, const std::string& colour) {
    const auto value = percent_text(to - from) + " · " + rank_time_text((to - from) * hours, run.metrics);
    const std::string weight = colour == "f-forward" ? "strong" : "";
    svg.text(left - 12, y + 18, Anchor::end, name, weight);
    svg.rect(axis.at(std::max(from, axis.low)), y + 3,
             std::max(1.5, axis.at(to) - axis.at(std::max(from, axis.low))), row_height - 6, colour,
             name + ": " + value);
    svg.text(right + 12, y + 18, Anchor::start, value, weight);
    y += row_height;
  };
  row("all of the ranks' time", 0, 1, "f-other");
  double left_over = 1;
  for (const auto& loss : shown) {
    svg.line(axis.at(left_over), y - 3, axis.at(left_over), y + 3, "axis");
    left_over = std::max(0.0, left_over - loss.fraction);
    row(loss.name, left_over, left_over + loss.fraction,
        loss.share == Share::waiting    ? "f-wait"
        : loss.share == Share::transfer ? "f-optimizer"
                                        : "f-data");
  }
  svg.line(axis.at(left_over), y - 3, axis.at(left_over), y + 3, "axis");
  row("useful compute", 0, useful, "f-forward");
  return svg.finish();
}

std::string efficiency_tree(const RunMetrics& metrics) {
  if (!metrics.parallel_efficiency.value) return "";
  const bool split = metrics.serialisation.value && metrics.transfer_efficiency.value;
  Svg svg(chart_width, split ? 262 : 164, "Parallel efficiency as the product of its causes");
  svg.line(480, 70, 480, 84, "axis");
  svg.line(237, 84, 719, 84, "axis");
  svg.line(237, 84, 237, 98, "axis");
  svg.line(719, 84, 719, 98, "axis");
  box(svg, 280, 8, 400, "parallel efficiency", metrics.parallel_efficiency,
      "useful compute as a share of the ranks' time");
  box(svg, 20, 98, 434, "load balance", metrics.load_balance,
      "mean compute of the ranks / compute of the busiest rank");
  box(svg, 500, 98, 438, "communication efficiency", metrics.communication_efficiency,
      "compute of the busiest rank / run time");
  svg.text(477, 134, Anchor::middle, "×", "strong");
  if (!split) return svg.finish();
  svg.line(719, 160, 719, 176, "axis");
  svg.line(606, 176, 832, 176, "axis");
  svg.line(606, 176, 606, 190, "axis");
  svg.line(832, 176, 832, 190, "axis");
  box(svg, 500, 190, 212, "serialisation", metrics.serialisation, "on an ideal network");
  box(svg, 726, 190, 212, "transfer", metrics.transfer_efficiency, "cost of the network");
  svg.text(719, 226, Anchor::middle, "×", "strong");
  return svg.finish();
}

std::string phases_chart(const RunMetrics& metrics) {
  if (metrics.window.length() <= 0) return "";
  std::vector<Part> legend;
  for (std::size_t i = 0; i < phase_count; ++i)
    if (metrics.phase_fraction(i).value.value_or(0) > 0)
      legend.push_back({std::string(phase_names[i]), "f-" + std::string(phase_names[i]), 0});
  if (legend.empty()) return "";
  const auto rows = rank_rows(metrics, most_rows);
  StackedBars bars(rows.size(), "Phases of the training thread by rank, in percent of the window", legend);
  for (const auto& row : rows) {
    std::vector<Part> parts;
    for (std::size_t i = 0; i < phase_count; ++i)
      parts.push_back({std::string(phase_names[i]), "f-" + std::string(phase_names[i]),
                       mean_of(row, metrics, [&](const RankMetrics& rank) { return rank.phases[i]; })});
    bars.add(row, parts);
  }
  return bars.finish();
}

std::string gpu_chart(const RunMetrics& metrics) {
  if (metrics.window.length() <= 0 || !metrics.no_gpu.empty()) return "";
  const std::vector<Part> legend = {{"compute", "f-forward", 0},
                                    {"communication only", "f-wait", 0},
                                    {"copies only", "f-data", 0},
                                    {"idle", "f-idle", 0}};
  const auto rows = rank_rows(metrics, most_rows);
  StackedBars bars(rows.size(), "What the GPUs do, by rank, in percent of the window", legend);
  for (const auto& row : rows) {
    auto parts = legend;
    const auto set = [&](std::size_t i, std::int64_t GpuTimes::*part) {
      parts[i].fraction = 0;
      for (const auto index : row.ranks)
        if (const auto& gpu = metrics.ranks[index].gpu; gpu && gpu->window > 0)
          parts[i].fraction += static_cast<double>((*gpu).*part) / static_cast<double>(gpu->window) /
                               static_cast<double>(row.ranks.size());
    };
    set(0, &GpuTimes::compute);
    set(1, &GpuTimes::communication_only);
    set(2, &GpuTimes::memcpy_only);
    set(3, &GpuTimes::idle);
    bars.add(row, parts);
  }
  return bars.finish();
}

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
      metrics.size() > 1 && metrics.overlap.value.has_value() &&
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

namespace {

constexpr double fit_left = 80, fit_right = 900;

std::string rate_text(double gbps) {
  return gbps < 1 ? fmt::format("{:.3g} MB/s", 1000 * gbps) : fmt::format("{:.3g} GB/s", gbps);
}

}  // namespace

std::string bandwidth_chart(const RunMetrics& metrics) {
  std::vector<const CollectiveRow*> rows;
  double low_bytes = 1e300, high_bytes = 0, low = 1e300, high = 0, ceiling = 0;
  for (const auto& row : metrics.collectives) {
    if (!row.busbw_gbps.value || !(*row.busbw_gbps.value > 0) || rows.size() >= 400) continue;
    rows.push_back(&row);
    low_bytes = std::min(low_bytes, *row.bytes.value);
    high_bytes = std::max(high_bytes, *row.bytes.value);
    low = std::min(low, *row.busbw_gbps.value);
    high = std::max(high, *row.busbw_gbps.value);
    if (row.of_proven.value) ceiling = std::max(ceiling, *row.busbw_gbps.value / *row.of_proven.value);
  }
  if (rows.empty()) return "";
  Svg svg(chart_width, 310, "Bandwidth of the collectives by message size");
  const Axis x{low_bytes / 2, high_bytes * 2, fit_left, fit_right, true};
  const Axis y{low / 2, std::max(high, ceiling) * 1.6, 250, 16, true};
  svg.rows(y, decades(y.low, y.high), x, rate_text);
  svg.columns(x, decades(x.low, x.high), 16, 250, 268, size_tick);
  if (ceiling > 0) {
    svg.line(fit_left, y.at(ceiling), fit_right, y.at(ceiling), "mark");
    svg.text(fit_right, y.at(ceiling) - 6, Anchor::end, "highest measured: " + rate_text(ceiling), "strong");
  }
  double longest = 1e-12;
  for (const auto* row : rows) longest = std::max(longest, row->total_s);
  for (const auto* row : rows) {
    const double busbw = *row->busbw_gbps.value;
    const double at = x.at(*row->bytes.value);
    const auto scaled = [&](double us) { return us > 0 ? y.at(busbw * row->transfer_us / us) : y.end; };
    svg.line(at, scaled(row->transfer_p10_us), at, scaled(row->transfer_p90_us), "whisker");
    svg.circle(at, y.at(busbw), 4 + 6 * std::sqrt(row->total_s / longest), "f-forward dot",
               fmt::format("{} ({}): {}, bus bandwidth {}, {} times", row->name, row->operation,
                           size_text(*row->bytes.value), rate_text(busbw), row->count));
  }
  svg.text(fit_right, 286, Anchor::end, "message size", "small");
  svg.text(
      fit_left, 304, Anchor::start,
      "dots: median bus bandwidth after the last rank's arrival, larger if they take more time in total; "
      "lines: fastest and slowest tenth",
      "small");
  return svg.finish();
}

std::string scaling_chart(const Scaling& scaling) {
  if (!scaling.unknown.empty() || scaling.points.size() < 2) return "";
  Svg svg(chart_width, 320, "Scaling efficiency by number of ranks");
  double most = scaling.points.back().ranks;
  for (const auto& point : scaling.forecast) most = std::max<double>(most, point.ranks);
  const Axis x{static_cast<double>(scaling.base_ranks), most * 1.1, fit_left, fit_right, true};
  double highest = 1;
  for (const auto& point : scaling.points) highest = std::max({highest, point.efficiency, point.ci95.high});
  const Axis y{0, highest * 1.1, 260, 16};
  svg.rows(y, ticks(0, y.high, 6), x, percent_tick);
  svg.columns(x, powers(x.low, x.high, 2), 16, 260, 278,
              [](double tick) { return fmt::format("{:.0f}", tick); });
  svg.line(fit_left, y.at(1), fit_right, y.at(1), "mark");
  svg.text(fit_right, y.at(1) - 6, Anchor::end, "perfect", "small");
  if (!scaling.forecast.empty()) {
    std::string line, band, back;
    for (std::size_t i = 0; i < scaling.forecast.size(); ++i) {
      const auto& point = scaling.forecast[i];
      const auto at = number(x.at(point.ranks));
      line += fmt::format("{}{} {}", i == 0 ? "M" : "L", at, number(y.at(point.efficiency)));
      band += fmt::format("{}{} {}", i == 0 ? "M" : "L", at, number(y.at(point.band.high)));
      back = fmt::format("L{} {}", at, number(y.at(point.band.low))) + back;
    }
    svg.path(band + back + "Z", "band");
    svg.path(line, "curve dashed");
  }
  std::string curve;
  for (const auto& point : scaling.points)
    curve += fmt::format("{}{} {}", curve.empty() ? "M" : "L", number(x.at(point.ranks)),
                         number(y.at(point.efficiency)));
  svg.path(curve, "curve");
  for (const auto& point : scaling.points) {
    svg.line(x.at(point.ranks), y.at(point.ci95.low), x.at(point.ranks), y.at(point.ci95.high), "whisker");
    svg.circle(x.at(point.ranks), y.at(point.efficiency), 5, "f-forward dot",
               fmt::format("{} ranks: {:.1f} % ({:.1f} to {:.1f})", point.ranks, 100 * point.efficiency,
                           100 * point.ci95.low, 100 * point.ci95.high));
  }
  svg.text(fit_right, 298, Anchor::end, "ranks", "small");
  if (!scaling.forecast.empty())
    svg.text(fit_left, 314, Anchor::start,
             "dashed: forecast of the " + scaling.model + " fit, with its 95 % band", "small");
  return svg.finish();
}

}  // namespace farandole::html

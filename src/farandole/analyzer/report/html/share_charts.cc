// Charts of shares: waterfall, efficiency tree, phases and GPU time by rank.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>

#include "farandole/analyzer/report/html/charts.h"
#include "farandole/analyzer/report/html/svg.h"
#include "farandole/analyzer/report/text_table.h"
#include "farandole/analyzer/report/units.h"

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
  for (const auto& loss : run.losses) {
    if (loss.fraction >= 0.001 && shown.size() < 12)
      shown.push_back(loss);
    else
      small += loss.fraction;
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
  Svg svg(chart_width, 262, "Parallel efficiency as the product of its causes");
  svg.line(480, 70, 480, 84, "axis");
  svg.line(237, 84, 719, 84, "axis");
  svg.line(237, 84, 237, 98, "axis");
  svg.line(719, 84, 719, 98, "axis");
  svg.line(719, 160, 719, 176, "axis");
  svg.line(606, 176, 832, 176, "axis");
  svg.line(606, 176, 606, 190, "axis");
  svg.line(832, 176, 832, 190, "axis");
  box(svg, 280, 8, 400, "parallel efficiency", metrics.parallel_efficiency,
      "useful compute as a share of the ranks' time");
  box(svg, 20, 98, 434, "load balance", metrics.load_balance,
      "mean compute of the ranks / compute of the busiest rank");
  box(svg, 500, 98, 438, "communication efficiency", metrics.communication_efficiency,
      "compute of the busiest rank / run time");
  box(svg, 500, 190, 212, "serialisation", metrics.serialisation, "on an ideal network");
  box(svg, 726, 190, 212, "transfer", metrics.transfer_efficiency, "cost of the network");
  svg.text(477, 134, Anchor::middle, "×", "strong");
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

}  // namespace farandole::html

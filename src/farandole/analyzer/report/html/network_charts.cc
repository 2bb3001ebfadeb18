// Charts of the network and of scaling: bandwidth by message size, efficiency by number of ranks.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "farandole/analyzer/report/html/charts.h"
#include "farandole/analyzer/report/html/svg.h"
#include "farandole/analyzer/report/units.h"

namespace farandole::html {
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

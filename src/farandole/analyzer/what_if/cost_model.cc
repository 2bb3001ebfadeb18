#include "farandole/analyzer/what_if/cost_model.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <span>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {
namespace {

// Largest relative error of every size with which one line is sufficient.
constexpr double one_line_will_do = 0.1;

struct SizeCost {
  double bytes = 0;
  double ns = 0;  // Median.
  double count = 0;
};

std::vector<SizeCost> by_size(const std::vector<CostSample>& samples) {
  std::vector<SizeCost> sizes;
  for (std::size_t begin = 0; begin < samples.size();) {
    std::vector<double> ns;
    auto end = begin;
    while (end < samples.size() && samples[end].bytes <= 1.01 * samples[begin].bytes)
      ns.push_back(samples[end++].ns);
    sizes.push_back({samples[(begin + end) / 2].bytes, quantile(ns, 0.5), static_cast<double>(ns.size())});
    begin = end;
  }
  return sizes;
}

// Least squares of relative errors.
CostModel::Line fit_line(std::span<const SizeCost> sizes) {
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (const auto& size : sizes) {
    const double weight = std::sqrt(size.count) / (size.ns * size.ns);
    w += weight;
    wx += weight * size.bytes;
    wy += weight * size.ns;
    wxx += weight * size.bytes * size.bytes;
    wxy += weight * size.bytes * size.ns;
  }
  const double determinant = w * wxx - wx * wx;
  CostModel::Line line;
  if (sizes.size() > 1 && determinant > 0) {
    line.beta_ns = (w * wxy - wx * wy) / determinant;
    line.alpha_ns = (wy - line.beta_ns * wx) / w;
  }
  if (sizes.size() < 2 || line.alpha_ns < 0) line = {0, wxx > 0 ? wxy / wxx : 0};
  if (line.beta_ns < 0 || wxx <= 0) line = {wy / w, 0};
  return line;
}

double worst_error(const CostModel::Line& line, std::span<const SizeCost> sizes) {
  double worst = 0;
  for (const auto& size : sizes) worst = std::max(worst, std::abs(line.at(size.bytes) / size.ns - 1));
  return worst;
}

void fit_two_lines(std::span<const SizeCost> sizes, CostModel& model) {
  double best = worst_error(model.line, sizes) / 2;  // A second line must halve the worst error.
  for (std::size_t split = 2; split + 2 <= sizes.size(); ++split) {
    const auto low = fit_line(sizes.first(split));
    const auto high = fit_line(sizes.subspan(split));
    const double worst =
        std::max(worst_error(low, sizes.first(split)), worst_error(high, sizes.subspan(split)));
    const double at = std::sqrt(sizes[split - 1].bytes * sizes[split].bytes);
    if (worst >= best || high.at(at) < low.at(at) * 0.9) continue;  // More bytes cannot cost less.
    best = worst;
    model.line = low;
    model.beyond = high;
    model.split_bytes = at;
  }
}

}  // namespace

CostModel fit_costs(std::vector<CostSample> samples, std::size_t least) {
  std::erase_if(samples, [](const CostSample& sample) { return !(sample.ns > 0) || sample.bytes < 0; });
  CostModel model;
  model.samples = samples.size();
  if (samples.size() < std::max<std::size_t>(least, 1)) {
    model.unknown = fmt::format("{} transfers are too few to estimate their cost (at least {} are needed)",
                                samples.size(), least);
    return model;
  }
  std::sort(samples.begin(), samples.end(),
            [](const CostSample& a, const CostSample& b) { return a.bytes < b.bytes; });
  const auto sizes = by_size(samples);
  model.sizes = sizes.size();
  model.line = fit_line(sizes);
  if (sizes.size() >= 4 && worst_error(model.line, sizes) > one_line_will_do) fit_two_lines(sizes, model);
  std::vector<double> deviations;
  for (const auto& sample : samples)
    deviations.push_back(std::abs(sample.ns / std::max(model.at(sample.bytes), 1e-9) - 1));
  model.spread = quantile(deviations, 0.5);
  return model;
}

}  // namespace farandole

#include "farandole/analyzer/scaling.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <numeric>

namespace farandole {
namespace {

struct Size {
  double global_batch = 0;
  std::vector<double> periods_ms;  // of all repeats
};

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

bool nearly_equal(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

// Throughput per rank against that of the smallest size; the same formula for weak and, where the batches are
// equal, for strong scaling: n·T_n / (N·T_N).
double efficiency(double base_batch_per_rank, double base_ms, double batch_per_rank, double ms) {
  return (batch_per_rank / ms) / (base_batch_per_rank / base_ms);
}

Range interval_of(const Size& base, double base_per_rank, const Size& size, double per_rank) {
  constexpr std::size_t budget = 20'000'000;  // draws, so that long runs do not take long
  const auto draws = base.periods_ms.size() + size.periods_ms.size();
  const auto resamples = std::clamp<std::size_t>(budget / draws, 200, 2000);
  Bootstrap bootstrap(2718281828);
  std::vector<double> efficiencies;
  for (std::size_t i = 0; i < resamples; ++i) {
    const double base_ms = bootstrap.resampled_mean(base.periods_ms);
    efficiencies.push_back(
        efficiency(base_per_rank, base_ms, per_rank, bootstrap.resampled_mean(size.periods_ms)));
  }
  return {quantile(efficiencies, 0.025), quantile(efficiencies, 0.975)};
}

Scaling unknown(std::string why) {
  return {std::move(why), {}, 0, {}};
}

std::string mode_of(const std::map<int, Size>& sizes) {
  const auto& [base_ranks, base] = *sizes.begin();
  bool weak = true;
  bool strong = true;
  for (const auto& [ranks, size] : sizes) {
    weak &= nearly_equal(size.global_batch / ranks, base.global_batch / base_ranks);
    strong &= nearly_equal(size.global_batch, base.global_batch);
  }
  return weak ? "weak" : strong ? "strong" : "";
}

}  // namespace

Scaling measure_scaling(const std::vector<SizedRun>& runs) {
  std::map<int, Size> sizes;
  for (const auto& run : runs) {
    if (!run.global_batch.value)
      return unknown(
          fmt::format("the global batch of {} is unknown: {}", run.path, run.global_batch.unknown));
    if (run.periods_ms.empty() || !(mean(run.periods_ms) > 0))
      return unknown(run.path + " has no steps in its window");
    auto& size = sizes[run.ranks];
    if (!size.periods_ms.empty() && !nearly_equal(size.global_batch, *run.global_batch.value))
      return unknown(fmt::format("runs of {} ranks differ in global batch ({} and {})", run.ranks,
                                 size.global_batch, *run.global_batch.value));
    size.global_batch = *run.global_batch.value;
    size.periods_ms.insert(size.periods_ms.end(), run.periods_ms.begin(), run.periods_ms.end());
  }
  if (sizes.size() < 2)
    return unknown("scaling needs runs of at least two sizes; add one of another number of ranks");
  Scaling scaling;
  scaling.mode = mode_of(sizes);
  if (scaling.mode.empty())
    return unknown("the runs have neither the same batch per rank (weak) nor the same global batch (strong)");
  scaling.base_ranks = sizes.begin()->first;
  const auto& base = sizes.begin()->second;
  const double base_per_rank = base.global_batch / scaling.base_ranks;
  const double base_ms = mean(base.periods_ms);
  for (const auto& [ranks, size] : sizes) {
    const double per_rank = size.global_batch / ranks;
    ScalingPoint point{ranks, mean(size.periods_ms), 1, {1, 1}};
    if (ranks != scaling.base_ranks) {
      point.efficiency = efficiency(base_per_rank, base_ms, per_rank, point.step_ms);
      point.ci95 = interval_of(base, base_per_rank, size, per_rank);
    }
    scaling.points.push_back(point);
  }
  return scaling;
}

}  // namespace farandole

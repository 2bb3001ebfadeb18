#include "farandole/analyzer/what_if/reduction_costs.h"

#include <algorithm>

#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/base/quantile.h"

namespace farandole {
namespace {

constexpr std::int64_t clock_ns = 5'000;  // Largest clock difference between ranks of a node.

}  // namespace

// With caller-driven progress, the first work of the training thread within the collective is its part of the
// reduction, unless this work follows a wait. Otherwise the part of the last rank is used, because this rank
// does not wait.
void ReductionCosts::add_part(const RankThread& rank, const CollectivePart& part,
                              const CollectiveMatch& match, bool caller_driven) {
  const auto bytes = static_cast<double>(match.bytes);
  const auto cost = [&](std::int64_t from, std::int64_t to) {
    return rank.clock.at(to) - rank.clock.at(from);
  };
  const bool last = match.last_rank == rank.index;
  // A thread that shares cores also waits for a core; the simulated cores already include that.
  const bool is_woken = !last && rank.clock.is_time();
  if (!caller_driven) {
    if (last) parts_.push_back({bytes, cost(part.start, part.end)});
    if (is_woken && part.end > match.last_arrival)
      ends_.push_back({bytes, static_cast<double>(part.end - match.last_arrival)});
    return;
  }
  const auto first = std::lower_bound(rank.waits.begin(), rank.waits.end(), part.start,
                                      [](const Interval& w, std::int64_t t) { return w.start < t; });
  if (first != rank.waits.end() && first->end < part.end && first->start + clock_ns >= match.last_arrival)
    parts_.push_back({bytes, cost(first->start, first->end)});
  const bool waited = first != rank.waits.end() && first->start < match.last_arrival &&
                      first->end >= part.end && first->end - part.end < wake_up_ns;
  if (waited && is_woken) ends_.push_back({bytes, static_cast<double>(part.end - match.last_arrival)});
}

void ReductionCosts::add_updates(const RankThread& rank, Interval tail, std::int64_t last_end,
                                 const std::vector<std::uint64_t>& buckets) {
  const auto begins_before = [](const Interval& update, std::int64_t t) { return update.start < t; };
  const auto first = std::lower_bound(rank.updates.begin(), rank.updates.end(), tail.start, begins_before);
  const auto behind = std::lower_bound(first, rank.updates.end(), tail.end, begins_before);
  if (first == behind) return;
  ++steps_with_updates_;
  if (first->start < last_end) ++steps_with_updates_between_;
  if (static_cast<std::size_t>(behind - first) != buckets.size()) return;
  for (auto update = first; update != behind; ++update)
    updates_.push_back({static_cast<double>(buckets[static_cast<std::size_t>(update - first)]),
                        rank.clock.at(update->end) - rank.clock.at(update->start)});
}

void ReductionCosts::settle(StepGraph& graph) const {
  graph.part = fit_costs(parts_);
  if (!graph.buckets.empty() && graph.part.known()) {
    std::vector<double> wakes;
    for (const auto& end : ends_) wakes.push_back(std::max(0.0, end.ns - graph.part.at(end.bytes)));
    if (wakes.size() >= 5) graph.wake_ns = quantile(wakes, 0.5);
    if (graph.part.sizes == 1)
      graph.notes.emplace_back(
          "all buckets have one size, so the latency cannot be separated from the bandwidth and is "
          "assumed to be 0");
  }
  graph.update = fit_costs(updates_);
  graph.updates_between = steps_with_updates_between_ * 20 > steps_with_updates_;
}

}  // namespace farandole

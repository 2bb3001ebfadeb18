#include "farandole/analyzer/what_if/run_buckets.h"

#include <algorithm>
#include <string_view>

#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/base/bucket_plan.h"
#include "farandole/base/quantile.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

constexpr std::size_t least_kept_steps = 3;  // With the last buckets; otherwise no steps are left out.

std::optional<std::size_t> bucket_number(std::string_view name) {
  constexpr std::string_view mark = "bucket ";
  if (!name.starts_with(mark)) return std::nullopt;
  return parse_number<std::size_t>(name.substr(mark.size()));
}

}  // namespace

std::vector<std::optional<std::size_t>> bucket_numbers(const std::vector<std::string>& names) {
  std::vector<std::optional<std::size_t>> numbers;
  for (const auto& name : names) numbers.push_back(bucket_number(name));
  return numbers;
}

LastBuckets last_buckets(const RunMetrics& metrics,
                         const std::vector<std::optional<std::size_t>>& bucket_of_name) {
  using Plan = std::map<std::size_t, std::uint64_t>;  // Bytes, by bucket.
  std::vector<Plan> of_step(metrics.window.steps.size());
  for (const auto& match : metrics.matches.matches)
    if (const auto bucket = bucket_of_name[match.name])
      of_step[step_at(metrics.window, match.last_arrival).value_or(0)].insert_or_assign(*bucket, match.bytes);
  LastBuckets result;
  auto last = std::find_if(of_step.rbegin(), of_step.rend(), [](const Plan& plan) { return !plan.empty(); });
  if (last == of_step.rend()) return result;
  // The last step of the window may be incomplete.
  const bool cut_off =
      last == of_step.rbegin() && last + 1 != of_step.rend() && last[1].size() > last->size();
  const Plan& plan = cut_off ? last[1] : *last;
  for (const auto& [bucket, bytes] : plan)
    if (bucket == result.bytes.size()) result.bytes.push_back(bytes);
  for (std::size_t i = 0; i < of_step.size(); ++i)
    for (const auto& [bucket, bytes] : of_step[i])
      if (const auto same = plan.find(bucket); same == plan.end() || same->second != bytes)
        result.first_step = i + 1;
  if (result.first_step + least_kept_steps > of_step.size()) result.first_step = 0;
  return result;
}

void GradientTimes::add(std::uint32_t name, std::uint64_t bytes, std::size_t rank, double at) {
  auto& one = by_name_[name];
  one.bytes = bytes;
  one.at.resize(ranks_);
  one.at[rank].push_back(at);
}

void GradientTimes::settle(StepGraph& graph) const {
  struct Settled {
    std::uint64_t bytes = 0;
    std::vector<double> at;  // Indexed by rank.
  };
  std::vector<Settled> order;
  for (const auto& [name, one] : by_name_) {
    if (std::any_of(one.at.begin(), one.at.end(), [](const auto& times) { return times.empty(); })) return;
    auto& settled = order.emplace_back(Settled{one.bytes, {}});
    // A backward that was held up moves its gradients to one of its ends, which changes a median little.
    for (const auto& times : one.at) settled.at.push_back(quantile(times, 0.5));
  }
  if (order.empty()) return;
  std::stable_sort(order.begin(), order.end(),
                   [](const Settled& a, const Settled& b) { return a.at[0] < b.at[0]; });
  for (const auto& one : order) graph.gradients.push_back(one.bytes);
  auto counts = fill_buckets(graph.gradients, graph.buckets);
  if (counts.empty()) {  // They may be transferred as numbers of half the size.
    auto whole = graph.buckets;
    for (auto& bytes : whole) bytes *= 2;
    counts = fill_buckets(graph.gradients, whole);
  }
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    auto& at = graph.gradient_at.emplace_back();
    for (const auto& one : order) at.push_back(one.at[rank]);
    std::size_t next = 0;
    for (std::size_t b = 0; b < counts.size(); ++b) {
      double full = b > 0 ? graph.bucket_at[rank][b - 1] : 0;
      for (std::size_t i = 0; i < counts[b]; ++i) full = std::max(full, at[next++]);
      graph.bucket_at[rank][b] = full;
    }
  }
  if (counts.empty())
    graph.notes.emplace_back(
        "the recorded gradients do not form the buckets; buckets count as full when they travelled");
}
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

#include "farandole/analyzer/metrics/critical_path.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {
namespace {

// Walks backwards and collects the parts of each training thread that are on the path.
class Walk {
 public:
  explicit Walk(const RunMetrics& metrics)
      : metrics_(metrics),
        window_(metrics.window.time),
        by_end_(metrics.ranks.size()),
        on_path(metrics.ranks.size()) {}

  void run() {
    for (std::size_t i = 0; i < metrics_.ranks.size(); ++i)
      if (metrics_.ranks[i].last_end > metrics_.ranks[rank_].last_end) rank_ = i;
    time_ = window_.end;
    while (time_ > window_.start) step_back();
  }

 private:
  const std::vector<CollectivePart>& parts() const { return metrics_.matches.parts[rank_]; }

  void take_training(std::int64_t from) {
    from = std::max(from, window_.start);
    if (from < time_) on_path[rank_].push_back({from, time_});
    time_ = std::min(time_, from);
  }

  void step_back() {
    const auto& waits = metrics_.ranks[rank_].training_waits;
    const auto after = std::partition_point(waits.begin(), waits.end(),
                                            [&](const Interval& wait) { return wait.start < time_; });
    if (after == waits.begin()) return take_training(window_.start);
    const auto wait = *(after - 1);
    if (wait.end < time_) return take_training(wait.end);
    const auto cause = cause_of(wait);
    if (!cause) return take_training(wait.start);
    go_through(parts()[*cause], wait);
  }

  // Returns the last collective of this rank that ended within the wait, if its last arrival is earlier.
  std::optional<std::uint32_t> cause_of(Interval wait) {
    auto& order = by_end_[rank_];
    if (order.size() != parts().size()) {
      order.resize(parts().size());
      std::iota(order.begin(), order.end(), 0U);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::uint32_t a, std::uint32_t b) { return parts()[a].end < parts()[b].end; });
    }
    auto at = std::partition_point(order.begin(), order.end(), [&](std::uint32_t part) {
      return parts()[part].end <= time_ + wake_up_ns;
    });
    while (at != order.begin()) {
      const auto& part = parts()[*--at];
      if (part.end <= wait.start) return std::nullopt;
      if (part.start < time_ && arrival_of(part) < time_) return *at;
    }
    return std::nullopt;
  }

  // Returns when this rank was ready for the collective.
  std::int64_t arrival_of(const CollectivePart& part) const {
    const auto last = metrics_.matches.matches[part.match].last_arrival;
    return part.end < last ? part.start : last;
  }

  // A transfer is on the path as far as this rank waits for it. Before that, this rank's own work hides it.
  void go_through(const CollectivePart& part, Interval wait) {
    const auto arrival = arrival_of(part);
    const auto begin = std::max({arrival, wait.start, window_.start});
    transfer += time_ - begin;
    time_ = begin;
    if (arrival < wait.start) return;
    const auto& match = metrics_.matches.matches[part.match];
    const std::size_t last = part.end < match.last_arrival ? rank_ : match.last_rank;
    if (last != rank_) ++changes;
    rank_ = last;
  }

  const RunMetrics& metrics_;
  const Interval window_;
  std::vector<std::vector<std::uint32_t>> by_end_;
  std::size_t rank_ = 0;
  std::int64_t time_ = 0;

 public:
  std::vector<std::vector<Interval>> on_path;  // Indexed by rank.
  std::int64_t transfer = 0;
  std::uint64_t changes = 0;
};

PathOfRank split(std::size_t rank_index, const std::vector<CategorySpan>& pieces,
                 const IntervalSet& on_path) {
  PathOfRank path;
  path.rank_index = rank_index;
  path.idle = on_path.measure();
  auto piece = pieces.begin();
  for (const auto& part : on_path.intervals()) {
    while (piece != pieces.end() && piece->end <= part.start) ++piece;
    for (auto at = piece; at != pieces.end() && at->start < part.end; ++at) {
      const auto ns = std::min(at->end, part.end) - std::max(at->start, part.start);
      path.phases[static_cast<std::size_t>(phase_of(at->category))] += ns;
      path.idle -= ns;
    }
  }
  return path;
}

}  // namespace

std::int64_t PathOfRank::total() const {
  return std::accumulate(phases.begin(), phases.end(), idle);
}

CriticalPath find_critical_path(const RunModel& run, const RunMetrics& metrics) {
  CriticalPath path;
  if (std::any_of(metrics.ranks.begin(), metrics.ranks.end(),
                  [](const RankMetrics& rank) { return rank.gpu; }))
    path.unknown = "the path follows the training threads, which run ahead of the kernels on GPUs";
  else if (!metrics.no_compute.empty())
    path.unknown = metrics.no_compute;
  else if (!metrics.no_alignment.empty())
    path.unknown = metrics.no_alignment;
  if (!path.unknown.empty()) return path;
  Walk walk(metrics);
  walk.run();
  path.transfer = walk.transfer;
  path.changes = walk.changes;
  for (std::size_t i = 0; i < run.ranks.size(); ++i)
    if (!walk.on_path[i].empty())
      path.ranks.push_back(
          split(i, innermost(run.ranks[i].training()), IntervalSet(std::move(walk.on_path[i]))));
  std::stable_sort(path.ranks.begin(), path.ranks.end(),
                   [](const PathOfRank& a, const PathOfRank& b) { return a.total() > b.total(); });
  return path;
}

}  // namespace farandole

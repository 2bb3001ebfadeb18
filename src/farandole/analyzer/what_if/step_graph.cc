#include "farandole/analyzer/what_if/step_graph.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <optional>

#include "farandole/analyzer/what_if/last_buckets.h"
#include "farandole/analyzer/what_if/work_clock.h"
#include "farandole/base/bucket_plan.h"
#include "farandole/base/parse_number.h"

namespace farandole {
namespace {

constexpr std::size_t many_rank_steps = 400'000;
constexpr std::size_t enough_rank_steps = 4'000;
// The last bucket plan is replayed only if it has at least this many steps.
constexpr std::size_t least_graph_steps = 3;
constexpr std::int64_t clock_ns = 5'000;  // Largest clock difference between ranks of a node.

std::optional<std::size_t> bucket_number(std::string_view name) {
  constexpr std::string_view mark = "bucket ";
  if (!name.starts_with(mark)) return std::nullopt;
  return parse_number<std::size_t>(name.substr(mark.size()));
}

// The times of a run's gradients, collected over ranks and steps.
struct GradientTimes {
  struct One {
    std::uint64_t bytes = 0;
    // For each rank, the values of all recorded steps, as fractions of backward.
    std::vector<std::vector<double>> at;
  };
  std::map<std::uint32_t, One> by_name;
};

class GraphBuilder {
 public:
  GraphBuilder(const RunModel& run, const RunMetrics& metrics, ReplayedSteps wanted)
      : run_(run), metrics_(metrics), wanted_(wanted) {}

  StepGraph build() {
    if (!refuse().empty()) {
      graph_.unknown = refuse();
      return std::move(graph_);
    }
    place_ranks();
    find_buckets();
    make_clocks();
    choose_steps();
    for (std::size_t i = 0; i < run_.ranks.size(); ++i) add_rank(i);
    settle_collectives();
    settle_buckets();
    settle_costs();
    return std::move(graph_);
  }

 private:
  std::string refuse() const {
    if (metrics_.window.steps.size() < 3) return "fewer than 3 steps are left after the warm-up";
    if (!metrics_.no_compute.empty()) return metrics_.no_compute;
    for (const auto& rank : metrics_.ranks)
      if (rank.gpu) return "the replay follows the training thread, which runs ahead of the kernels on GPUs";
    for (const auto& rank : run_.ranks)
      if (rank.steps.empty()) return fmt::format("rank {} has no steps", rank.rank);
    return "";
  }

  void place_ranks() {
    std::map<std::string, std::size_t> nodes;
    for (const auto& rank : run_.ranks)
      graph_.node_of_rank.push_back(nodes.try_emplace(rank.host, nodes.size()).first->second);
    graph_.cores = static_cast<double>(run_.facts.cores.value_or(0));
    graph_.threads = static_cast<double>(run_.facts.threads.value_or(1));
  }

  void find_buckets() {
    const auto& matches = metrics_.matches;
    for (const auto& name : run_.names) bucket_of_name_.push_back(bucket_number(name));
    const auto last = last_buckets(metrics_, bucket_of_name_);
    graph_.buckets = last.bytes;
    graph_.first_step = last.first_step;
    std::size_t parts = 0, own = 0;
    for (std::size_t i = 0; i < run_.ranks.size(); ++i) {
      const auto& waits = metrics_.ranks[i].training_waits;
      for (const auto& part : matches.parts[i]) {
        if (!bucket_of_name_[matches.matches[part.match].name]) continue;
        ++own;
        // Work within the collective is the training thread's own part of it.
        const auto inside = std::lower_bound(waits.begin(), waits.end(), part.start,
                                             [](const Interval& w, std::int64_t t) { return w.start < t; });
        parts += inside != waits.end() && inside->end < part.end ? 1 : 0;
      }
    }
    in_parts_ = parts * 20 > own;
  }

  void make_clocks() {
    const std::size_t nodes = 1 + *std::max_element(graph_.node_of_rank.begin(), graph_.node_of_rank.end());
    clocks_.resize(nodes);
    for (std::size_t node = 0; node < nodes; ++node) {
      std::vector<std::vector<Interval>> idle;
      std::vector<Interval> beside;
      for (std::size_t i = 0; i < run_.ranks.size(); ++i) {
        if (graph_.node_of_rank[i] != node) continue;
        idle.push_back(metrics_.ranks[i].training_waits);
        if (!in_parts_) add_transfers(i, beside);
      }
      const double most = static_cast<double>(idle.size()) * (graph_.threads + (beside.empty() ? 0 : 1));
      if (!(graph_.cores > 0 && most > graph_.cores)) continue;
      clocks_[node] = WorkClock(idle, beside, graph_.threads, graph_.cores, metrics_.window.time);
      share_cores_ = true;
    }
  }

  // Adds the times in which the thread beside this rank's training thread works.
  void add_transfers(std::size_t index, std::vector<Interval>& into) const {
    for (const auto& part : metrics_.matches.parts[index]) {
      const auto& match = metrics_.matches.matches[part.match];
      if (bucket_of_name_[match.name]) into.push_back({std::max(part.start, match.last_arrival), part.end});
    }
  }

  void choose_steps() {
    const std::size_t all = metrics_.window.steps.size() - graph_.first_step;
    const auto rank_steps = wanted_ == ReplayedSteps::many ? many_rank_steps : enough_rank_steps;
    const std::size_t most = std::max<std::size_t>(20, rank_steps / run_.ranks.size());
    // The stride is odd, so that it includes steps that record when gradients are ready (every 32nd step).
    const std::size_t stride = ((all + most - 1) / most) | 1;
    for (std::size_t i = 0; i < all; i += stride) chosen_.push_back(graph_.first_step + i);
    if (stride > 1)
      graph_.notes.push_back(
          fmt::format("{} steps are recorded, and {} of them are replayed", all, chosen_.size()));
  }

  void add_rank(std::size_t index) {
    Rank rank{index,
              run_.ranks[index].training(),
              run_.ranks[index].gradients(),
              metrics_.ranks[index].training_waits,
              clocks_[graph_.node_of_rank[index]],
              {}};
    for (const auto& piece : innermost(rank.spans))
      if (piece.category == Category::optimizer) rank.updates.push_back({piece.start, piece.end});
    auto& steps = graph_.steps.emplace_back();
    graph_.bucket_at.emplace_back(graph_.buckets.size(), 0.0);
    bucket_samples_.assign(graph_.buckets.size(), {});
    const auto& own = run_.ranks[index].steps;
    for (const auto i : chosen_) {
      const auto number = metrics_.window.step_numbers[i];
      const auto step = std::lower_bound(own.begin(), own.end(), number,
                                         [](const StepSpan& s, std::int64_t n) { return s.number < n; });
      const auto next = step + 1;
      const bool follows =
          next != own.end() && next->start >= step->end && i + 1 < metrics_.window.steps.size();
      steps.push_back(step_of(rank, *step, {step->start, follows ? next->start : step->end}));
    }
    for (std::size_t b = 0; b < graph_.buckets.size(); ++b)
      if (!bucket_samples_[b].empty()) graph_.bucket_at.back()[b] = quantile(bucket_samples_[b], 0.5);
  }

  struct Rank {
    std::size_t index;
    std::vector<CategorySpan> spans;
    std::vector<CollectiveSpan> gradients;
    const std::vector<Interval>& waits;
    const WorkClock& clock;
    std::vector<Interval> updates;
  };

  static auto first_at(const std::vector<CategorySpan>& spans, std::int64_t time) {
    return std::lower_bound(spans.begin(), spans.end(), time,
                            [](const CategorySpan& span, std::int64_t t) { return span.start < t; });
  }

  RankStep step_of(const Rank& rank, const StepSpan& step, Interval tile) {
    const ThreadClock clock(rank.clock, rank.waits, tile);
    Interval backward{step.end, step.end};
    std::vector<Interval> checkpoints;
    for (auto span = first_at(rank.spans, tile.start); span != rank.spans.end() && span->start < tile.end;
         ++span) {
      if (span->category == Category::backward && span->end <= step.end) backward = {span->start, span->end};
      if (span->category == Category::checkpoint && span->start >= step.end)
        checkpoints.push_back({span->start, std::min(span->end, tile.end)});
    }
    RankStep result;
    result.before = clock.at(backward.start);
    result.backward = clock.at(backward.end) - result.before;
    result.tail = clock.at(step.end) - clock.at(backward.end);
    result.after = clock.at(tile.end) - clock.at(step.end);
    const IntervalSet outer(checkpoints);
    for (const auto& checkpoint : outer.intervals())
      result.checkpoint += clock.at(checkpoint.end) - clock.at(checkpoint.start);
    result.after = std::max(0.0, result.after - result.checkpoint);
    add_collectives(rank, clock, step, tile, backward, checkpoints, result);
    add_gradients(rank, clock, backward, result);
    return result;
  }

  void add_collectives(const Rank& rank, const ThreadClock& clock, const StepSpan& step, Interval tile,
                       Interval backward, const std::vector<Interval>& checkpoints, RankStep& result) {
    const auto& parts = metrics_.matches.parts[rank.index];
    auto part = std::lower_bound(parts.begin(), parts.end(), tile.start,
                                 [](const CollectivePart& p, std::int64_t t) { return p.start < t; });
    std::size_t buckets = 0;
    std::int64_t last_end = tile.start;
    for (; part != parts.end() && part->start < tile.end; ++part) {
      const auto& match = metrics_.matches.matches[part->match];
      if (const auto bucket = bucket_of_name_[match.name]) {
        ++buckets;
        last_end = std::max(last_end, part->end);
        if (*bucket < graph_.buckets.size() && match.bytes == graph_.buckets[*bucket] && result.backward > 0)
          bucket_samples_[*bucket].push_back(
              std::clamp((clock.at(part->start) - result.before) / result.backward, 0.0, 1.0));
        add_costs(rank, *part, match);
        continue;
      }
      if (match.part_count != run_.ranks.size() || !waits_at(rank, (part->start + part->end) / 2)) continue;
      const bool of_checkpoint = std::any_of(checkpoints.begin(), checkpoints.end(), [&](const Interval& c) {
        return part->start >= c.start && part->start < c.end;
      });
      const auto from = std::max(part->start, std::min(part->end, match.last_arrival));
      result.collectives.push_back(placed(clock.at(part->start), result));
      auto& collective = result.collectives.back();
      collective.ns = static_cast<double>(part->end - from);
      collective.bytes = match.bytes;
      collective.of_checkpoint = of_checkpoint;
    }
    if (buckets == graph_.buckets.size()) add_updates(rank, step, backward, last_end);
  }

  static OwnCollective placed(double at, const RankStep& step) {
    using Part = OwnCollective::Part;
    const std::pair<Part, double> parts[] = {
        {Part::before, step.before}, {Part::backward, step.backward}, {Part::tail, step.tail}};
    OwnCollective collective;
    collective.part = Part::after;
    for (const auto& [part, length] : parts) {
      if (at < length) {
        collective.part = part;
        break;
      }
      at -= length;
    }
    collective.at = at;
    return collective;
  }

  static bool waits_at(const Rank& rank, std::int64_t time) {
    const auto wait = std::lower_bound(rank.waits.begin(), rank.waits.end(), time,
                                       [](const Interval& w, std::int64_t t) { return w.end <= t; });
    return wait != rank.waits.end() && wait->start <= time;
  }

  // With caller-driven progress, the first work of the training thread within the collective is its part of
  // the reduction, unless this work follows a wait. Otherwise the part of the last rank is used, because this
  // rank does not wait.
  void add_costs(const Rank& rank, const CollectivePart& part, const CollectiveMatch& match) {
    const auto bytes = static_cast<double>(match.bytes);
    const auto cost = [&](std::int64_t from, std::int64_t to) {
      return rank.clock.at(to) - rank.clock.at(from);
    };
    const bool last = match.last_rank == rank.index;
    // A thread that shares cores also waits for a core; the simulated cores already include that.
    const bool is_woken = !last && rank.clock.is_time();
    if (!in_parts_) {
      if (last) costs_.push_back({bytes, cost(part.start, part.end)});
      if (is_woken && part.end > match.last_arrival)
        ends_.push_back({bytes, static_cast<double>(part.end - match.last_arrival)});
      return;
    }
    const auto first = std::lower_bound(rank.waits.begin(), rank.waits.end(), part.start,
                                        [](const Interval& w, std::int64_t t) { return w.start < t; });
    if (first != rank.waits.end() && first->end < part.end && first->start + clock_ns >= match.last_arrival)
      costs_.push_back({bytes, cost(first->start, first->end)});
    const bool waited = first != rank.waits.end() && first->start < match.last_arrival &&
                        first->end >= part.end && first->end - part.end < wake_up_ns;
    if (waited && is_woken) ends_.push_back({bytes, static_cast<double>(part.end - match.last_arrival)});
  }

  void add_updates(const Rank& rank, const StepSpan& step, Interval backward, std::int64_t last_end) {
    std::vector<Interval> updates;
    auto update = std::lower_bound(rank.updates.begin(), rank.updates.end(), backward.end,
                                   [](const Interval& u, std::int64_t t) { return u.start < t; });
    for (; update != rank.updates.end() && update->start < step.end; ++update) updates.push_back(*update);
    if (updates.empty()) return;
    ++steps_with_updates_;
    if (updates.front().start < last_end) ++steps_with_updates_between_;
    if (updates.size() != graph_.buckets.size()) return;
    for (std::size_t b = 0; b < updates.size(); ++b)
      updates_.push_back({static_cast<double>(graph_.buckets[b]),
                          rank.clock.at(updates[b].end) - rank.clock.at(updates[b].start)});
  }

  void add_gradients(const Rank& rank, const ThreadClock& clock, Interval backward, const RankStep& step) {
    if (!(step.backward > 0)) return;
    auto ready = std::lower_bound(rank.gradients.begin(), rank.gradients.end(), backward.start,
                                  [](const CollectiveSpan& g, std::int64_t t) { return g.start < t; });
    for (; ready != rank.gradients.end() && ready->start <= backward.end; ++ready) {
      auto& one = gradients_.by_name[ready->name];
      one.bytes = ready->what.bytes;
      one.at.resize(run_.ranks.size());
      one.at[rank.index].push_back(
          std::clamp((clock.at(ready->start) - step.before) / step.backward, 0.0, 1.0));
    }
  }

  // All ranks must have the same number of collectives.
  void settle_collectives() {
    for (std::size_t step = 0; step < chosen_.size(); ++step) {
      std::size_t least = SIZE_MAX;
      for (const auto& steps : graph_.steps) least = std::min(least, steps[step].collectives.size());
      for (auto& steps : graph_.steps) steps[step].collectives.resize(least);
    }
  }

  // The gradients in the order of the first rank that records all of them, and the buckets that they form.
  void settle_buckets() {
    struct Settled {
      std::uint64_t bytes = 0;
      std::vector<double> at;  // Indexed by rank.
    };
    std::vector<Settled> order;
    for (auto& [name, one] : gradients_.by_name) {
      if (std::any_of(one.at.begin(), one.at.end(), [](const auto& times) { return times.empty(); })) return;
      auto& settled = order.emplace_back(Settled{one.bytes, {}});
      // If a backward pass was delayed, its gradients move to one of its ends. Medians are not affected.
      for (auto& times : one.at) settled.at.push_back(quantile(times, 0.5));
    }
    if (order.empty()) return;
    std::stable_sort(order.begin(), order.end(),
                     [](const Settled& a, const Settled& b) { return a.at[0] < b.at[0]; });
    for (const auto& one : order) graph_.gradients.push_back(one.bytes);
    auto counts = fill_buckets(graph_.gradients, graph_.buckets);
    if (counts.empty()) {  // They may be transferred as numbers of half the size.
      auto whole = graph_.buckets;
      for (auto& bytes : whole) bytes *= 2;
      counts = fill_buckets(graph_.gradients, whole);
    }
    for (std::size_t rank = 0; rank < run_.ranks.size(); ++rank) {
      auto& at = graph_.gradient_at.emplace_back();
      for (const auto& one : order) at.push_back(one.at[rank]);
      std::size_t next = 0;
      for (std::size_t b = 0; b < counts.size(); ++b) {
        double full = b > 0 ? graph_.bucket_at[rank][b - 1] : 0;
        for (std::size_t i = 0; i < counts[b]; ++i) full = std::max(full, at[next++]);
        graph_.bucket_at[rank][b] = full;
      }
    }
    if (counts.empty())
      graph_.notes.emplace_back(
          "the recorded gradients do not form the buckets; buckets count as full when they "
          "travelled");
  }

  void settle_costs() {
    graph_.caller_driven = in_parts_;
    graph_.part = fit_costs(costs_);
    if (!graph_.buckets.empty() && graph_.part.known()) {
      std::vector<double> wakes;
      for (const auto& end : ends_) wakes.push_back(std::max(0.0, end.ns - graph_.part.at(end.bytes)));
      if (wakes.size() >= 5) graph_.wake_ns = quantile(wakes, 0.5);
      if (graph_.part.sizes == 1)
        graph_.notes.emplace_back(
            "all buckets have one size, so the latency cannot be separated from the bandwidth and is "
            "assumed to be 0");
    }
    graph_.update = fit_costs(updates_);
    graph_.updates_between = steps_with_updates_between_ * 20 > steps_with_updates_;
    if (share_cores_)
      graph_.notes.emplace_back(
          "there are more threads than cores; it is assumed that they always share the cores equally");
    if (graph_.first_step > 0)
      graph_.notes.emplace_back(
          "the buckets changed during the run; only the steps with the last buckets are replayed");
  }

  const RunModel& run_;
  const RunMetrics& metrics_;
  const ReplayedSteps wanted_;
  StepGraph graph_;
  std::vector<std::optional<std::size_t>> bucket_of_name_;
  bool in_parts_ = false;
  std::vector<WorkClock> clocks_;  // Indexed by node.
  bool share_cores_ = false;       // True if threads share cores on any node.
  std::vector<std::size_t> chosen_;
  std::vector<std::vector<double>> bucket_samples_;  // Of one rank.
  std::vector<CostSample> costs_, ends_, updates_;
  std::size_t steps_with_updates_ = 0, steps_with_updates_between_ = 0;
  GradientTimes gradients_;
};

}  // namespace

StepGraph graph_of(const RunModel& run, const RunMetrics& metrics, ReplayedSteps steps) {
  return GraphBuilder(run, metrics, steps).build();
}

}  // namespace farandole

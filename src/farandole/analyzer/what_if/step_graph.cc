#include "farandole/analyzer/what_if/step_graph.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <optional>

#include "farandole/analyzer/what_if/run_buckets.h"
#include "farandole/analyzer/what_if/shared_cores.h"
#include "farandole/base/quantile.h"

namespace farandole {
namespace {

constexpr std::size_t many_rank_steps = 400'000;
constexpr std::size_t enough_rank_steps = 4'000;
class GraphBuilder {
 public:
  GraphBuilder(const RunModel& run, const RunMetrics& metrics, ReplayedSteps wanted)
      : run_(run), metrics_(metrics), wanted_(wanted), gradients_(run.ranks.size()) {}

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
    gradients_.settle(graph_);
    costs_.settle(graph_);
    add_notes();
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
    bucket_of_name_ = bucket_numbers(run_.names);
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
    graph_.caller_driven = parts * 20 > own;
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
        if (!graph_.caller_driven) add_transfers(i, beside);
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
    RankThread rank{index,
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

  static auto first_at(const std::vector<CategorySpan>& spans, std::int64_t time) {
    return std::lower_bound(spans.begin(), spans.end(), time,
                            [](const CategorySpan& span, std::int64_t t) { return span.start < t; });
  }

  RankStep step_of(const RankThread& rank, const StepSpan& step, Interval tile) {
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

  void add_collectives(const RankThread& rank, const ThreadClock& clock, const StepSpan& step, Interval tile,
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
        costs_.add_part(rank, *part, match, graph_.caller_driven);
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
      collective.of_checkpoint = of_checkpoint;
    }
    if (buckets == graph_.buckets.size())
      costs_.add_updates(rank, {backward.end, step.end}, last_end, graph_.buckets);
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

  static bool waits_at(const RankThread& rank, std::int64_t time) {
    const auto wait = std::lower_bound(rank.waits.begin(), rank.waits.end(), time,
                                       [](const Interval& w, std::int64_t t) { return w.end <= t; });
    return wait != rank.waits.end() && wait->start <= time;
  }

  void add_gradients(const RankThread& rank, const ThreadClock& clock, Interval backward,
                     const RankStep& step) {
    if (!(step.backward > 0)) return;
    auto ready = std::lower_bound(rank.gradients.begin(), rank.gradients.end(), backward.start,
                                  [](const CollectiveSpan& g, std::int64_t t) { return g.start < t; });
    for (; ready != rank.gradients.end() && ready->start <= backward.end; ++ready) {
      gradients_.add(ready->name, ready->what.bytes, rank.index,
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

  void add_notes() {
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
  std::vector<WorkClock> clocks_;  // Indexed by node.
  bool share_cores_ = false;       // True if threads share cores on any node.
  std::vector<std::size_t> chosen_;
  std::vector<std::vector<double>> bucket_samples_;  // Of one rank.
  ReductionCosts costs_;
  GradientTimes gradients_;
};

}  // namespace

StepGraph graph_of(const RunModel& run, const RunMetrics& metrics, ReplayedSteps steps) {
  return GraphBuilder(run, metrics, steps).build();
}

}  // namespace farandole

#include "farandole/analyzer/what_if/step_graph.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "farandole/base/bucket_plan.h"
#include "farandole/base/quantile.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

constexpr std::size_t most_rank_steps = 100'000;
constexpr std::size_t least_kept_steps = 3;       // With the last buckets; otherwise no steps are left out.
constexpr std::int64_t clock_difference = 5'000;  // Largest one between ranks of a node, in ns.

// The work of a thread since the beginning of an interval, without its waits.
class ThreadClock {
 public:
  // `waits` must be sorted and disjoint.
  ThreadClock(const std::vector<Interval>& waits, Interval interval) : begin_(interval.start) {
    auto wait = std::lower_bound(waits.begin(), waits.end(), interval.start,
                                 [](const Interval& one, std::int64_t time) { return one.end <= time; });
    std::int64_t waited = 0;
    for (; wait != waits.end() && wait->start < interval.end; ++wait) {
      const Interval inside{std::max(wait->start, interval.start), wait->end};
      waits_.push_back({inside, waited});
      waited += inside.end - inside.start;
    }
  }

  // `time` must be within the interval.
  double at(std::int64_t time) const {
    const auto next = std::upper_bound(waits_.begin(), waits_.end(), time,
                                       [](std::int64_t t, const Wait& one) { return t < one.when.start; });
    auto work = time - begin_;
    if (next != waits_.begin()) {
      const auto& last = *(next - 1);
      work -= last.before + std::min(time, last.when.end) - last.when.start;
    }
    return static_cast<double>(std::max<std::int64_t>(0, work));
  }

 private:
  struct Wait {
    Interval when;
    std::int64_t before = 0;  // Waiting time before this wait.
  };
  const std::int64_t begin_;
  std::vector<Wait> waits_;
};

// The number of the bucket that each of the run's names names.
using BucketNumbers = std::vector<std::optional<std::size_t>>;

BucketNumbers bucket_numbers(const std::vector<std::string>& names) {
  constexpr std::string_view mark = "bucket ";
  BucketNumbers numbers;
  for (const auto& name : names)
    numbers.push_back(name.starts_with(mark)
                          ? parse_number<std::size_t>(std::string_view(name).substr(mark.size()))
                          : std::nullopt);
  return numbers;
}

// A run may first try bucket sizes. Finds the buckets of the last step that has buckets, and the first step
// from which on they did not change.
void find_last_buckets(const RunMetrics& metrics, const BucketNumbers& bucket_of_name, StepGraph& graph) {
  using Plan = std::map<std::size_t, std::uint64_t>;  // Bytes, by bucket.
  std::vector<Plan> of_step(metrics.window.steps.size());
  for (const auto& match : metrics.matches.matches)
    if (const auto bucket = bucket_of_name[match.name])
      of_step[step_at(metrics.window, match.last_arrival).value_or(0)].insert_or_assign(*bucket, match.bytes);
  auto last = std::find_if(of_step.rbegin(), of_step.rend(), [](const Plan& plan) { return !plan.empty(); });
  if (last == of_step.rend()) return;
  // The last step of the window may be incomplete.
  const bool cut_off =
      last == of_step.rbegin() && last + 1 != of_step.rend() && last[1].size() > last->size();
  const Plan& plan = cut_off ? last[1] : *last;
  for (const auto& [bucket, bytes] : plan)
    if (bucket == graph.buckets.size()) graph.buckets.push_back(bytes);
  for (std::size_t i = 0; i < of_step.size(); ++i)
    for (const auto& [bucket, bytes] : of_step[i])
      if (const auto same = plan.find(bucket); same == plan.end() || same->second != bytes)
        graph.first_step = i + 1;
  if (graph.first_step + least_kept_steps > of_step.size()) graph.first_step = 0;
}

// Collects the times at which gradients were ready, over ranks and steps.
class GradientTimes {
 public:
  explicit GradientTimes(std::size_t ranks) : ranks_(ranks) {}

  // `at` is a fraction of the work of its backward. `name` is an index into the run's names.
  void add(std::uint32_t name, std::uint64_t bytes, std::size_t rank, double at) {
    auto& one = by_name_[name];
    one.bytes = bytes;
    one.at.resize(ranks_);
    one.at[rank].push_back(at);
  }

  // Adds the gradients to `graph`, in the order of the first rank, and the times at which their buckets were
  // full. Adds nothing if a rank does not record every gradient.
  void add_to(StepGraph& graph) const {
    std::vector<Median> order;
    for (const auto& [name, one] : by_name_) {
      auto& median = order.emplace_back(Median{one.bytes, {}});
      for (const auto& times : one.at) {
        if (times.empty()) return;
        // A backward that was held up moves its gradients to one of its ends, which changes a median little.
        median.at.push_back(quantile(times, 0.5));
      }
    }
    if (order.empty()) return;
    std::stable_sort(order.begin(), order.end(),
                     [](const Median& a, const Median& b) { return a.at[0] < b.at[0]; });
    for (const auto& one : order) graph.gradients.push_back(one.bytes);
    const auto counts = gradients_by_bucket(graph);
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

 private:
  struct Recorded {
    std::uint64_t bytes = 0;
    std::vector<std::vector<double>> at;  // Indexed by rank; all recorded steps.
  };
  struct Median {
    std::uint64_t bytes = 0;
    std::vector<double> at;  // Indexed by rank.
  };

  static std::vector<std::size_t> gradients_by_bucket(const StepGraph& graph) {
    const auto counts = fill_buckets(graph.gradients, graph.buckets);
    if (!counts.empty()) return counts;
    auto whole = graph.buckets;  // They may be transferred as numbers of half the size.
    for (auto& bytes : whole) bytes *= 2;
    return fill_buckets(graph.gradients, whole);
  }

  std::size_t ranks_;
  std::map<std::uint32_t, Recorded> by_name_;
};

// One rank's training thread, unpacked.
struct RankThread {
  std::size_t index;  // of the rank in the run
  std::vector<CategorySpan> spans;
  std::vector<CollectiveSpan> gradients;
  const std::vector<Interval>& waits;
  std::vector<Interval> updates;  // by the optimizer

  // The first of `intervals` that starts at `time` or later.
  static auto first_from(const std::vector<Interval>& intervals, std::int64_t time) {
    return std::lower_bound(intervals.begin(), intervals.end(), time,
                            [](const Interval& one, std::int64_t t) { return one.start < t; });
  }
};

double length_of(const Interval& interval) {
  return static_cast<double>(interval.end - interval.start);
}

class ReductionCosts {
 public:
  // The rank's part of a bucket's reduction. If the training thread reduces (`caller_driven`), its first work
  // within the collective is its part, unless this work follows a wait. Otherwise the part of the last rank
  // is used, because this rank does not wait.
  void add_part(const RankThread& rank, const CollectivePart& part, const CollectiveMatch& match,
                bool caller_driven) {
    const auto bytes = static_cast<double>(match.bytes);
    const bool last = match.last_rank == rank.index;
    const double since_last = static_cast<double>(part.end - match.last_arrival);
    if (!caller_driven) {
      if (last) parts_.push_back({bytes, static_cast<double>(part.end - part.start)});
      if (!last && since_last > 0) ends_.push_back({bytes, since_last});
      return;
    }
    const auto first = RankThread::first_from(rank.waits, part.start);
    if (first == rank.waits.end()) return;
    if (first->end < part.end && first->start + clock_difference >= match.last_arrival)
      parts_.push_back({bytes, length_of(*first)});
    const bool waited =
        first->start < match.last_arrival && first->end >= part.end && first->end - part.end < wake_up_ns;
    if (waited && !last) ends_.push_back({bytes, since_last});
  }

  // The updates that begin in `tail`, which is between a step's backward and its end. `last_end`: of the
  // step's reductions. `buckets`: their bytes.
  void add_updates(const RankThread& rank, Interval tail, std::int64_t last_end,
                   const std::vector<std::uint64_t>& buckets) {
    const auto first = RankThread::first_from(rank.updates, tail.start);
    const auto behind = RankThread::first_from(rank.updates, tail.end);
    if (first == behind) return;
    ++steps_with_updates_;
    if (first->start < last_end) ++steps_with_updates_between_;
    if (static_cast<std::size_t>(behind - first) != buckets.size()) return;
    for (auto update = first; update != behind; ++update)
      updates_.push_back(
          {static_cast<double>(buckets[static_cast<std::size_t>(update - first)]), length_of(*update)});
  }

  void add_to(StepGraph& graph) const {
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

 private:
  std::vector<CostSample> parts_, ends_, updates_;
  std::size_t steps_with_updates_ = 0, steps_with_updates_between_ = 0;
};

std::string why_no_graph(const RunModel& run, const RunMetrics& metrics) {
  if (metrics.window.steps.size() < 3) return "fewer than 3 steps are left after the warm-up";
  if (!metrics.no_compute.empty()) return metrics.no_compute;
  for (const auto& rank : metrics.ranks)
    if (rank.gpu) return "the replay follows the training thread, which runs ahead of the kernels on GPUs";
  for (const auto& rank : run.ranks)
    if (rank.steps.empty()) return fmt::format("rank {} has no steps", rank.rank);
  return "";
}

class GraphBuilder {
 public:
  GraphBuilder(const RunModel& run, const RunMetrics& metrics)
      : run_(run),
        metrics_(metrics),
        bucket_of_name_(bucket_numbers(run.names)),
        gradients_(run.ranks.size()) {}

  StepGraph build() {
    place_ranks();
    find_last_buckets(metrics_, bucket_of_name_, graph_);
    graph_.caller_driven = training_threads_reduce();
    choose_steps();
    for (std::size_t i = 0; i < run_.ranks.size(); ++i) add_rank(i);
    cut_collectives();
    gradients_.add_to(graph_);
    costs_.add_to(graph_);
    if (graph_.first_step > 0)
      graph_.notes.emplace_back(
          "the buckets changed during the run; only the steps with the last buckets are replayed");
    return std::move(graph_);
  }

 private:
  void place_ranks() {
    std::map<std::string, std::size_t> nodes;
    for (const auto& rank : run_.ranks)
      graph_.node_of_rank.push_back(nodes.try_emplace(rank.host, nodes.size()).first->second);
    graph_.cores = static_cast<double>(run_.facts.cores.value_or(0));
    graph_.threads = static_cast<double>(run_.facts.threads.value_or(1));
  }

  // Work within a bucket's collective is the training thread's own part of it.
  bool training_threads_reduce() const {
    std::size_t parts = 0, all = 0;
    for (std::size_t i = 0; i < run_.ranks.size(); ++i) {
      const auto& waits = metrics_.ranks[i].training_waits;
      for (const auto& part : metrics_.matches.parts[i]) {
        if (!bucket_of_name_[metrics_.matches.matches[part.match].name]) continue;
        ++all;
        const auto inside = RankThread::first_from(waits, part.start);
        if (inside != waits.end() && inside->end < part.end) ++parts;
      }
    }
    return parts * 20 > all;
  }

  void choose_steps() {
    const std::size_t all = metrics_.window.steps.size() - graph_.first_step;
    const std::size_t most = std::max<std::size_t>(20, most_rank_steps / run_.ranks.size());
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

  // `tile`: until the next step.
  RankStep step_of(const RankThread& rank, const StepSpan& step, Interval tile) {
    const ThreadClock clock(rank.waits, tile);
    Interval backward{step.end, step.end};
    std::vector<Interval> checkpoints;
    auto span = std::lower_bound(rank.spans.begin(), rank.spans.end(), tile.start,
                                 [](const CategorySpan& one, std::int64_t t) { return one.start < t; });
    for (; span != rank.spans.end() && span->start < tile.end; ++span) {
      if (span->category == Category::backward && span->end <= step.end) backward = {span->start, span->end};
      if (span->category == Category::checkpoint && span->start >= step.end)
        checkpoints.push_back({span->start, std::min(span->end, tile.end)});
    }
    RankStep result;
    result.before = clock.at(backward.start);
    result.backward = clock.at(backward.end) - result.before;
    result.tail = clock.at(step.end) - clock.at(backward.end);
    const IntervalSet written(checkpoints);
    for (const auto& checkpoint : written.intervals())
      result.checkpoint += clock.at(checkpoint.end) - clock.at(checkpoint.start);
    result.after = std::max(0.0, clock.at(tile.end) - clock.at(step.end) - result.checkpoint);
    add_collectives(rank, clock, {backward.end, step.end}, tile, checkpoints, result);
    add_gradients(rank, clock, backward, result);
    return result;
  }

  void add_collectives(const RankThread& rank, const ThreadClock& clock, Interval tail, Interval tile,
                       const std::vector<Interval>& checkpoints, RankStep& result) {
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
      auto collective = placed(clock.at(part->start), result);
      collective.ns = length_of({std::max(part->start, std::min(part->end, match.last_arrival)), part->end});
      collective.of_checkpoint =
          std::any_of(checkpoints.begin(), checkpoints.end(), [&](const Interval& checkpoint) {
            return part->start >= checkpoint.start && part->start < checkpoint.end;
          });
      result.collectives.push_back(collective);
    }
    if (buckets == graph_.buckets.size()) costs_.add_updates(rank, tail, last_end, graph_.buckets);
  }

  static OwnCollective placed(double at, const RankStep& step) {
    using Part = OwnCollective::Part;
    for (const auto& [part, length] :
         {std::pair(Part::before, step.before), {Part::backward, step.backward}, {Part::tail, step.tail}}) {
      if (at < length) return {part, at};
      at -= length;
    }
    return {Part::after, at};
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
    for (; ready != rank.gradients.end() && ready->start <= backward.end; ++ready)
      gradients_.add(ready->name, ready->what.bytes, rank.index,
                     std::clamp((clock.at(ready->start) - step.before) / step.backward, 0.0, 1.0));
  }

  // All ranks must have the same number of collectives.
  void cut_collectives() {
    for (std::size_t step = 0; step < chosen_.size(); ++step) {
      std::size_t least = SIZE_MAX;
      for (const auto& steps : graph_.steps) least = std::min(least, steps[step].collectives.size());
      for (auto& steps : graph_.steps) steps[step].collectives.resize(least);
    }
  }

  const RunModel& run_;
  const RunMetrics& metrics_;
  const BucketNumbers bucket_of_name_;
  StepGraph graph_;
  std::vector<std::size_t> chosen_;                  // Steps.
  std::vector<std::vector<double>> bucket_samples_;  // Of one rank.
  ReductionCosts costs_;
  GradientTimes gradients_;
};

}  // namespace

StepGraph graph_of(const RunModel& run, const RunMetrics& metrics) {
  if (auto why = why_no_graph(run, metrics); !why.empty()) {
    StepGraph graph;
    graph.unknown = std::move(why);
    return graph;
  }
  return GraphBuilder(run, metrics).build();
}

}  // namespace farandole

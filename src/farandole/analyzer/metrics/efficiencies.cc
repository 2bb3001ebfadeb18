#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/metrics/replay.h"
#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {
namespace {

enum class Network { as_it_was, ideal };

// The program of one rank, from its recorded collectives and waits.
class RecordedRank {
 public:
  RecordedRank(const RunMetrics& metrics, std::size_t index, Network network, std::int64_t origin)
      : matches_(metrics.matches.matches),
        parts_(metrics.matches.parts[index]),
        waits_(metrics.ranks[index].training_waits),
        last_end_(metrics.ranks[index].last_end),
        network_(network),
        at_(origin),
        by_end_(parts_.size()),
        lowest_match_(parts_.size() + 1, UINT32_MAX) {
    for (auto i = parts_.size(); i > 0; --i)
      lowest_match_[i - 1] = std::min(lowest_match_[i], parts_[i - 1].match);
    std::iota(by_end_.begin(), by_end_.end(), 0U);
    std::stable_sort(by_end_.begin(), by_end_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return parts_[a].end < parts_[b].end; });
  }

  // Appends the operations until the rank has entered its next collective, or until its last step has ended.
  void append(std::vector<ReplayOperation>& into) {
    const bool has_part = next_part_ < parts_.size();
    if (!has_part && has_ended_) return;
    const bool ends = !has_ended_ && (!has_part || last_end_ <= parts_[next_part_].start);
    const auto time = ends ? last_end_ : parts_[next_part_].start;
    for (; next_wait_ < waits_.size() && waits_[next_wait_].end <= time; ++next_wait_)
      wait(waits_[next_wait_], into);
    const bool is_waiting = next_wait_ < waits_.size() && waits_[next_wait_].start < time;
    work_until(is_waiting ? waits_[next_wait_].start : time, into);
    if (ends) {
      into.push_back({.kind = Kind::mark, .ns = static_cast<double>(time - at_)});
      has_ended_ = true;
    } else {
      enter(next_part_++, into);
    }
  }

 private:
  using Kind = ReplayOperation::Kind;

  void work_until(std::int64_t time, std::vector<ReplayOperation>& into) {
    if (time <= at_) return;
    into.push_back({.kind = Kind::work, .ns = static_cast<double>(time - at_)});
    at_ = time;
  }

  // The wait ends with the last collective that ended in it. Matches are ordered by last arrival, so a wait
  // does not depend on matches behind those that follow it, except within `wake_up_ns`: then ranks would wait
  // for each other forever.
  void wait(Interval wait, std::vector<ReplayOperation>& into) {
    work_until(wait.start, into);
    while (next_end_ < by_end_.size() && parts_[by_end_[next_end_]].end <= wait.start) ++next_end_;
    auto recorded = wait.start;
    bool is_explained = false;
    for (auto i = next_end_; i < by_end_.size(); ++i) {
      const auto part = by_end_[i];
      if (parts_[part].end > wait.end + wake_up_ns) break;
      if (part >= next_part_ || parts_[part].match >= lowest_match_[next_part_]) continue;
      into.push_back({.kind = Kind::await, .index = part});
      recorded = std::max(recorded, parts_[part].end);
      is_explained = true;
    }
    at_ = is_explained ? std::min(recorded, wait.end) : wait.start;
    work_until(wait.end, into);
  }

  void enter(std::uint32_t index, std::vector<ReplayOperation>& into) {
    const auto& part = parts_[index];
    const auto last_arrival = matches_[part.match].last_arrival;
    ReplayOperation operation{.kind = Kind::enter, .index = part.match};
    operation.leaves_early = part.end < last_arrival;
    if (network_ == Network::as_it_was)
      operation.ns = static_cast<double>(part.end - (operation.leaves_early ? part.start : last_arrival));
    auto could_enter = at_;
    if (index > 0) {
      const auto& before = parts_[index - 1];
      if (before.end <= part.start + wake_up_ns && before.match < part.match) {
        operation.after = index - 1;
        could_enter = std::max(could_enter, std::min(before.end, part.start));
      }
    }
    operation.delay_ns = static_cast<double>(part.start - could_enter);
    into.push_back(operation);
  }

  const std::vector<CollectiveMatch>& matches_;
  const std::vector<CollectivePart>& parts_;
  const std::vector<Interval>& waits_;
  const std::int64_t last_end_;
  const Network network_;
  std::int64_t at_;                          // Recorded time that the operations have reached.
  std::vector<std::uint32_t> by_end_;        // Parts ordered by their ends.
  std::vector<std::uint32_t> lowest_match_;  // Of this part and all later ones.
  std::uint32_t next_part_ = 0;
  std::size_t next_wait_ = 0, next_end_ = 0;
  bool has_ended_ = false;
};

// The run as it was recorded: the training thread of each rank takes its recorded time between waits, a
// collective ends its recorded transfer time after the last arrival (ideal: immediately), and a wait ends
// with the last collective that ended in it. If it is unknown when a collective that was queued behind
// another became ready, it is ready when it started or when the training thread began to wait; this
// overestimates the effect of the network.
class RecordedProgram : public ReplayProgram {
 public:
  RecordedProgram(const RunMetrics& metrics, Network network)
      : matches_(metrics.matches), origin_(metrics.window.time.start) {
    for (const auto& parts : matches_.parts)
      if (!parts.empty()) origin_ = std::min(origin_, parts.front().start);
    for (std::size_t i = 0; i < metrics.ranks.size(); ++i)
      programs_.emplace_back(metrics, i, network, origin_);
  }

  std::size_t ranks() const override { return programs_.size(); }
  std::size_t members(std::size_t match) const override { return matches_.matches[match].part_count; }
  void append(std::size_t rank, std::vector<ReplayOperation>& into) override { programs_[rank].append(into); }
  std::int64_t origin() const { return origin_; }

 private:
  const CollectiveMatches& matches_;
  std::int64_t origin_;
  std::vector<RecordedRank> programs_;
};

// Returns the length of the window in ns.
double replay_length(const RunMetrics& metrics, Network network) {
  RecordedProgram program(metrics, network);
  const auto ends = replay(program);
  return ends.front().last - static_cast<double>(metrics.window.time.start - program.origin());
}

void add_overlap(RunMetrics& metrics) {
  if (!metrics.no_compute.empty()) {
    metrics.overlap = Figure::because(metrics.no_compute);
    return;
  }
  double communication = 0;
  double overlap = 0;
  for (const auto& rank : metrics.ranks) {
    communication += static_cast<double>(rank.communication);
    overlap += static_cast<double>(rank.overlap);
  }
  metrics.overlap = Figure::ratio(overlap, communication, "no communication in the window");
}

void add_pop_efficiencies(RunMetrics& metrics) {
  if (!metrics.no_compute.empty()) {
    for (auto* figure :
         {&metrics.parallel_efficiency, &metrics.load_balance, &metrics.communication_efficiency})
      *figure = Figure::because(metrics.no_compute);
    return;
  }
  double mean = 0;
  double most = 0;
  if (const auto parallel = metrics.fraction(&RankMetrics::compute); parallel.value)
    mean = *parallel.value * metrics.window_ns();
  for (const auto& rank : metrics.ranks)  // In unrecorded time, it computes as much as in the rest.
    if (rank.recorded > 0)
      most = std::max(
          most, static_cast<double>(rank.compute) / static_cast<double>(rank.recorded) * metrics.window_ns());
  metrics.parallel_efficiency = Figure::ratio(mean, metrics.window_ns(), empty_window);
  metrics.load_balance = Figure::ratio(mean, most, "no rank computes in the window");
  metrics.communication_efficiency = Figure::ratio(most, metrics.window_ns(), empty_window);
}

// The product of both is the communication efficiency. This also holds if the replay is slightly longer than
// the run or shorter than its longest rank.
void add_replay(RunMetrics& metrics) {
  std::string why;
  double most = 0;
  for (const auto& rank : metrics.ranks) {
    most = std::max(most, static_cast<double>(rank.compute));
    if (rank.gpu) why = "GPU runs are not replayed, because their training threads run ahead of the kernels";
  }
  if (!metrics.no_alignment.empty()) why = metrics.no_alignment;
  if (metrics.window.steps.empty()) why = metrics.window.no_steps;
  if (most <= 0) why = "no rank computes in the window";
  if (!metrics.no_compute.empty()) why = metrics.no_compute;
  if (!why.empty()) {
    metrics.serialisation = metrics.transfer_efficiency = Figure::because(why);
    return;
  }
  const double window = metrics.window_ns();
  const double replayed = replay_length(metrics, Network::ideal);
  const double ideal = std::clamp(replayed, most, std::max(most, window));
  metrics.serialisation = Figure::ratio(most, ideal, empty_window);
  metrics.transfer_efficiency = Figure::ratio(ideal, window, empty_window);
  metrics.replay_error = replay_length(metrics, Network::as_it_was) / window - 1;
}

// Adds up one member of each step's totals.
std::vector<double> by_step(const RunMetrics& metrics, double (*of)(const StepTotals&)) {
  std::vector<double> sums;
  for (const auto& step : metrics.steps) sums.push_back(of(step));
  return sums;
}

}  // namespace

void add_efficiencies(RunMetrics& metrics) {
  add_overlap(metrics);
  add_pop_efficiencies(metrics);
  add_replay(metrics);
}

void add_intervals(const RunFacts& facts, RunMetrics& metrics) {
  const auto& periods = metrics.window.periods_ms;
  const auto available = [&](std::size_t ranks) {
    std::vector<double> ns;
    for (const double period : periods) ns.push_back(period * 1e6 * static_cast<double>(ranks));
    return ns;
  };
  const auto of_window = [&](const Figure& figure, std::size_t ranks, double (*of)(const StepTotals&)) {
    return figure.value ? ratio_interval(*figure.value, by_step(metrics, of), available(ranks), 1)
                        : std::nullopt;
  };
  const auto ranks = metrics.ranks.size();
  metrics.parallel_ci95 =
      of_window(metrics.parallel_efficiency, ranks, [](const StepTotals& step) { return step.compute; });
  metrics.communication_ci95 = of_window(metrics.fraction(&RankMetrics::communication), ranks,
                                         [](const StepTotals& step) { return step.communication; });
  metrics.exposed_ci95 = of_window(metrics.fraction(&RankMetrics::exposed), ranks,
                                   [](const StepTotals& step) { return step.communication - step.overlap; });
  if (metrics.no_alignment.empty()) {  // Otherwise the values cover only some of the ranks.
    metrics.waiting_ci95 = of_window(metrics.fraction(&RankMetrics::waiting), ranks,
                                     [](const StepTotals& step) { return step.waiting; });
    metrics.transfer_ci95 =
        of_window(metrics.fraction(&RankMetrics::transfer), ranks,
                  [](const StepTotals& step) { return step.communication - step.waiting; });
  }
  if (const auto shares = gpu_shares(metrics)) {
    const auto gpus = std::count_if(metrics.ranks.begin(), metrics.ranks.end(),
                                    [](const RankMetrics& rank) { return rank.gpu.has_value(); });
    metrics.utilization_ci95 = of_window(Figure::known(shares->utilization), static_cast<std::size_t>(gpus),
                                         [](const StepTotals& step) { return step.kernels; });
  }
  if (metrics.overlap.value)
    metrics.overlap_ci95 = ratio_interval(
        *metrics.overlap.value, by_step(metrics, [](const StepTotals& step) { return step.overlap; }),
        by_step(metrics, [](const StepTotals& step) { return step.communication; }), 1);
  if (metrics.throughput.value)
    metrics.throughput_ci95 =
        ratio_interval(*metrics.throughput.value,
                       std::vector<double>(periods.size(), *facts.global_batch * 1e3), periods, HUGE_VAL);
}

}  // namespace farandole

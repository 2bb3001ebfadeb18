#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "farandole/analyzer/metrics/rank_metrics.h"
#include "farandole/analyzer/statistics/estimate.h"

namespace farandole {
namespace {

constexpr std::int64_t not_replayed = INT64_MIN;

enum class Network { as_it_was, ideal };

// One rank: the shift between replayed and recorded time of its training thread, and its collectives.
class RankReplay {
 public:
  RankReplay(const std::vector<Interval>& waits, const std::vector<CollectivePart>& parts)
      : waits_(waits), parts_(parts), ends_(parts.size(), not_replayed), by_end_(parts.size()) {
    std::iota(by_end_.begin(), by_end_.end(), 0U);
    std::stable_sort(by_end_.begin(), by_end_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return parts[a].end < parts[b].end; });
  }

  // Returns when this rank arrives at the collective.
  std::int64_t arrival(std::uint32_t part) {
    const auto start = parts_[part].start;
    advance(start);
    auto progress = start;
    if (next_wait_ < waits_.size() && waits_[next_wait_].start < start) progress = waits_[next_wait_].start;
    auto replayed = progress + shift_;
    if (part > 0) {
      const auto& before = parts_[part - 1];
      if (before.end <= start + wake_up_ns && ends_[part - 1] != not_replayed) {
        progress = std::max(progress, std::min(before.end, start));
        replayed = std::max(replayed, ends_[part - 1]);
      }
    }
    return replayed + (start - progress);
  }

  void set_end(std::uint32_t part, std::int64_t end) { ends_[part] = end; }

  // Returns when the training thread reaches the work that it did at the recorded time `time`.
  std::int64_t at(std::int64_t time) {
    advance(time);
    return time + shift_;
  }

 private:
  void advance(std::int64_t time) {
    for (; next_wait_ < waits_.size() && waits_[next_wait_].end <= time; ++next_wait_)
      pass(waits_[next_wait_]);
  }

  void pass(Interval wait) {
    while (next_end_ < by_end_.size() && parts_[by_end_[next_end_]].end <= wait.start) ++next_end_;
    std::int64_t recorded = not_replayed;
    std::int64_t replayed = not_replayed;
    for (auto at = next_end_; at < by_end_.size(); ++at) {
      const auto part = by_end_[at];
      if (parts_[part].end > wait.end + wake_up_ns) break;
      if (ends_[part] == not_replayed) continue;
      recorded = std::max(recorded, parts_[part].end);
      replayed = std::max(replayed, ends_[part]);
    }
    if (recorded == not_replayed) return;  // No collective explains this wait, so its duration is kept.
    const auto behind = std::max<std::int64_t>(0, wait.end - recorded);
    shift_ = std::max(wait.start + shift_, replayed) + behind - wait.end;
  }

  const std::vector<Interval>& waits_;
  const std::vector<CollectivePart>& parts_;
  std::vector<std::int64_t> ends_;     // Replayed ends, by part.
  std::vector<std::uint32_t> by_end_;  // Parts ordered by recorded end.
  std::size_t next_wait_ = 0;
  std::size_t next_end_ = 0;
  std::int64_t shift_ = 0;
};

struct Member {
  std::uint32_t rank;
  std::uint32_t part;
};

// The parts of each match, match by match. `first` has the index of the first part of each match.
std::vector<Member> members_of(const CollectiveMatches& matches, std::vector<std::size_t>& first) {
  first.assign(matches.matches.size() + 1, 0);
  for (std::size_t i = 0; i < matches.matches.size(); ++i)
    first[i + 1] = first[i] + matches.matches[i].part_count;
  std::vector<Member> members(first.back());
  auto next = first;
  for (std::uint32_t rank = 0; rank < matches.parts.size(); ++rank)
    for (std::uint32_t part = 0; part < matches.parts[rank].size(); ++part)
      members[next[matches.parts[rank][part].match]++] = {rank, part};
  return members;
}

// Replays the dependencies of a run and returns the length of the window in ns under these rules: the
// training thread of each rank takes its recorded time between waits; a collective ends its recorded transfer
// time after the last arrival (ideal: immediately); a wait ends with the last collective that ended in it. If
// it is unknown when a collective that was queued behind another became ready, it is ready when it started or
// when the training thread began to wait; this overestimates the effect of the network.
//
// Matches are ordered by last arrival, and all collectives on which an arrival depends ended before it.
// Therefore every dependency is known when a match is processed.
std::int64_t replay_length(const RunMetrics& metrics, Network network) {
  const auto& matches = metrics.matches;
  std::vector<RankReplay> ranks;
  ranks.reserve(metrics.ranks.size());
  for (std::size_t i = 0; i < metrics.ranks.size(); ++i)
    ranks.emplace_back(metrics.ranks[i].training_waits, matches.parts[i]);
  std::vector<std::size_t> first;
  const auto members = members_of(matches, first);
  std::vector<std::int64_t> arrivals;
  for (std::size_t i = 0; i < matches.matches.size(); ++i) {
    arrivals.clear();
    for (auto at = first[i]; at < first[i + 1]; ++at)
      arrivals.push_back(ranks[members[at].rank].arrival(members[at].part));
    const auto last = *std::max_element(arrivals.begin(), arrivals.end());
    for (auto at = first[i]; at < first[i + 1]; ++at) {
      const auto& part = matches.parts[members[at].rank][members[at].part];
      const bool stays =
          part.end >= matches.matches[i].last_arrival;  // Some operations let a rank leave early.
      const auto from = stays ? last : arrivals[at - first[i]];
      const auto took = part.end - (stays ? matches.matches[i].last_arrival : part.start);
      ranks[members[at].rank].set_end(members[at].part, from + (network == Network::ideal ? 0 : took));
    }
  }
  std::int64_t end = metrics.window.time.start;
  for (std::size_t i = 0; i < ranks.size(); ++i) end = std::max(end, ranks[i].at(metrics.ranks[i].last_end));
  return end - metrics.window.time.start;
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
  double sum = 0;
  double most = 0;
  for (const auto& rank : metrics.ranks) {
    sum += static_cast<double>(rank.compute);
    most = std::max(most, static_cast<double>(rank.compute));
  }
  const double mean = sum / static_cast<double>(metrics.ranks.size());
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
  const auto replayed = static_cast<double>(replay_length(metrics, Network::ideal));
  const double ideal = std::clamp(replayed, most, std::max(most, window));
  metrics.serialisation = Figure::ratio(most, ideal, empty_window);
  metrics.transfer_efficiency = Figure::ratio(ideal, window, empty_window);
  metrics.replay_error = static_cast<double>(replay_length(metrics, Network::as_it_was)) / window - 1;
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

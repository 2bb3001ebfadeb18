#include "farandole/analyzer/what_if/what_if.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <utility>

#include "farandole/analyzer/metrics/collectives.h"
#include "farandole/analyzer/metrics/replay.h"
#include "farandole/base/bucket_plan.h"

namespace farandole {
namespace {

constexpr double bytes_a_mib = 1024 * 1024;
constexpr std::size_t most_operations = 4'000'000;  // Of all ranks together.
constexpr std::size_t few_operations = 12'000;
constexpr std::size_t least_replayed_steps = 5;
constexpr const char* wait_forever = "in the replay, ranks wait for each other forever";

// Returns whether this compression halves the bytes that are transferred.
bool is_half(const std::string& compression) {
  return compression == "float16" || compression == "bfloat16";
}

// The recorded steps under a scenario. Only the first steps are replayed, so that all ranks together need
// at most `operations`.
class ChangedProgram : public ReplayProgram {
 public:
  ChangedProgram(const Replay& run, const Scenario& scenario, double cost_factor, std::size_t operations)
      : run_(run), graph_(run.graph), scenario_(scenario) {
    ranks_ = static_cast<std::size_t>(scenario.ranks.value_or(static_cast<int>(recorded())));
    const auto a_step = ranks_ * (8 + 2 * std::max(graph_.gradients.size(), graph_.buckets.size()));
    steps_ = std::clamp<std::size_t>(operations / a_step, std::min(least_replayed_steps, recorded_steps()),
                                     recorded_steps());
    positions_.resize(ranks_);
    choose_buckets();
    find_costs(cost_factor);
    find_updates();
    for (std::size_t step = 0; step < recorded_steps(); ++step)
      a_step_ = std::max(a_step_, sizes_.size() + graph_.steps.front()[step].collectives.size());
  }

  std::size_t ranks() const override { return ranks_; }
  std::size_t members(std::size_t /*collective*/) const override { return ranks_; }
  void append(std::size_t rank, std::vector<ReplayOperation>& into) override {
    auto& position = positions_[rank];
    if (position.step > steps_) return;
    into.push_back({.kind = Kind::mark, .index = static_cast<std::uint32_t>(position.step)});
    if (position.step < steps_) append_step(rank, into);
    ++position.step;
  }

  std::size_t steps() const { return steps_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  using Kind = ReplayOperation::Kind;
  using Part = OwnCollective::Part;

  std::size_t recorded() const { return graph_.steps.size(); }
  std::size_t recorded_steps() const { return graph_.steps.front().size(); }

  void choose_buckets() {
    full_at_ = graph_.bucket_at;
    sizes_ = graph_.buckets;
    if (!scenario_.bucket_mb) return;
    const auto plan = plan_recorded_buckets(graph_.gradients,
                                            {static_cast<std::size_t>(*scenario_.bucket_mb * bytes_a_mib)});
    sizes_.clear();
    for (auto& at : full_at_) at.clear();
    // Bytes on the wire, as in graph_.buckets.
    const std::uint64_t divisor = is_half(run_.compression) ? 2 : 1;
    for (const auto& bucket : plan.buckets) {
      sizes_.push_back(bucket.bytes() / divisor);
      for (std::size_t rank = 0; rank < recorded(); ++rank) {
        double full = full_at_[rank].empty() ? 0 : full_at_[rank].back();
        for (const auto& slot : bucket.slots) full = std::max(full, graph_.gradient_at[rank][slot.tensor]);
        full_at_[rank].push_back(full);
      }
    }
    notes_.push_back(fmt::format("{} bucket{} instead of {}", sizes_.size(), sizes_.size() == 1 ? "" : "s",
                                 graph_.buckets.size()));
  }

  // If the run had one node, all ranks are placed on it. Otherwise the number of nodes changes, and each node
  // keeps its number of ranks.
  void find_costs(double factor) {
    double latency = 1, volume = 1;
    if (ranks_ != recorded() && nodes_of(graph_) == 1) {
      notes_.emplace_back("all ranks run on the single node of the run");
      if (graph_.cores <= 0)
        notes_.emplace_back("the number of cores is unknown and assumed to be sufficient");
    } else if (ranks_ != recorded()) {
      latency = std::log2(std::max(2.0, static_cast<double>(ranks_))) /
                std::log2(std::max(2.0, static_cast<double>(recorded())));
      volume = bus_factor("allreduce", ranks_) / std::max(0.5, bus_factor("allreduce", recorded()));
      notes_.push_back(fmt::format("the nodes are as in the run, with {} ranks each",
                                   (recorded() + nodes_of(graph_) - 1) / nodes_of(graph_)));
      notes_.emplace_back(
          "the latency is assumed to grow with the logarithm of the ranks, and the bytes on the wire as in "
          "a ring");
    }
    const double bandwidth = scenario_.bandwidth.value_or(1);
    for (const auto size : sizes_) {
      const auto bytes = static_cast<double>(size);
      const auto& line = graph_.part.line_for(bytes);
      costs_.push_back(
          ranks_ > 1 ? factor * (line.alpha_ns * latency + line.beta_ns * bytes * volume / bandwidth) : 0);
    }
  }

  // Finds which part of a step's work follows backward, and the cost of each further update.
  void find_updates() {
    const bool known = graph_.update.known() && graph_.update.sizes > 1;
    double sum = 0;
    for (const auto size : sizes_) {
      const double cost = known ? graph_.update.at(static_cast<double>(size)) : static_cast<double>(size);
      update_share_.push_back(cost);
      sum += cost;
    }
    for (auto& share : update_share_) share /= std::max(sum, 1e-9);
    const auto more = static_cast<double>(sizes_.size()) - static_cast<double>(graph_.buckets.size());
    if (known) more_updates_ns_ = more * graph_.update.line.alpha_ns;
  }

  bool is_late(std::size_t rank) const {
    return std::find(run_.late_ranks.begin(), run_.late_ranks.end(), rank) != run_.late_ranks.end();
  }

  // Selects the recorded work: additional ranks use other steps of the recorded ranks, and a late rank uses a
  // later step of another rank.
  std::pair<std::size_t, std::size_t> source(std::size_t rank, std::size_t step) const {
    auto of = rank % recorded();
    auto at = step + rank / recorded();
    if (scenario_.no_straggler && is_late(of)) {
      for (std::size_t i = 0; i < recorded() && is_late(of); ++i) of = (of + 1) % recorded();
      ++at;
    }
    return {of, at % recorded_steps()};
  }

  void append_step(std::size_t rank, std::vector<ReplayOperation>& into) {
    const auto step = positions_[rank].step;
    const auto [of, at] = source(rank, step);
    const auto& own = graph_.steps[of][at];
    for (const auto& delay : scenario_.delays)
      if (static_cast<std::size_t>(delay.rank) == rank) into.push_back({Kind::work, 0, delay.ms * 1e6});
    // Collectives are those of the current step, so that all ranks have the same number of them.
    StepWriter writer{*this, into, positions_[rank], graph_.steps[rank % recorded()][step].collectives};
    writer.work(own.before);
    writer.begin(Part::backward);
    backward(writer, of, own);
    writer.begin(Part::tail);
    if (!graph_.updates_between && !sizes_.empty()) writer.await(sizes_.size() - 1);
    for (std::size_t b = 0; b < sizes_.size(); ++b) {
      if (graph_.updates_between) writer.await(b);
      writer.work(std::max(0.0, own.tail + more_updates_ns_) * update_share_[b]);
    }
    if (sizes_.empty()) writer.work(own.tail);
    writer.begin(Part::after);
    writer.work(own.after);
    if (!scenario_.no_checkpoint) writer.work(own.checkpoint);
    writer.finish();
  }

  struct Position {  // Of a rank in its program.
    std::size_t step = 0;
    std::uint32_t entered = 0;  // Number of collectives that the rank has entered.
  };

  // Writes a step of a rank: work, reductions and, at their recorded places, the collectives of
  // the training thread.
  struct StepWriter {
    const ChangedProgram& program;
    std::vector<ReplayOperation>& into;
    Position& position;
    const std::vector<OwnCollective>& collectives;
    std::vector<std::uint32_t> pushed = {};  // The rank's own numbers of the buckets.
    std::size_t next = 0;                    // Collective.
    Part part = Part::before;
    double done = 0;  // Work of the part that is already written.

    // First writes the remaining collectives of the previous part.
    void begin(Part begun) {
      for (; next < collectives.size() && collectives[next].part < begun; ++next) write(collectives[next]);
      part = begun;
      done = 0;
    }
    void work(double ns) {
      const double until = done + ns;
      for (; next < collectives.size() && collectives[next].part <= part && collectives[next].at < until;
           ++next) {
        if (const double before = collectives[next].at - done; before > 0) {
          into.push_back({Kind::work, 0, before});
          done += before;
        }
        write(collectives[next]);
      }
      if (until > done) into.push_back({Kind::work, 0, until - done});
      done = until;
    }
    void finish() {
      for (; next < collectives.size(); ++next) write(collectives[next]);
    }
    void write(const OwnCollective& collective) {
      if (program.scenario_.no_checkpoint && collective.of_checkpoint) return;
      into.push_back({Kind::enter, index_of(program.sizes_.size() + next), collective.ns});
      into.push_back({Kind::await, position.entered++});
    }

    void push() {
      const auto bucket = pushed.size();
      ReplayOperation operation{Kind::push, index_of(bucket), program.costs_[bucket]};
      if (!program.graph_.caller_driven) {
        operation.kind = Kind::enter;
        operation.wakes = true;
        if (bucket > 0) operation.after = pushed.back();
      }
      into.push_back(operation);
      pushed.push_back(position.entered++);
      if (program.graph_.caller_driven) into.push_back({Kind::poll});
    }
    void await(std::size_t bucket) {
      into.push_back({program.graph_.caller_driven ? Kind::finish : Kind::await, pushed[bucket]});
    }
    std::uint32_t index_of(std::size_t of_step) const {
      return static_cast<std::uint32_t>(position.step * program.a_step_ + of_step);
    }
  };

  // The training thread polls whenever a gradient is ready.
  void backward(StepWriter& writer, std::size_t of, const RankStep& own) const {
    static const std::vector<double> no_polls;
    const auto& polls =
        graph_.caller_driven && !graph_.gradient_at.empty() ? graph_.gradient_at[of] : no_polls;
    double done = 0;
    const auto until = [&](double at) {
      writer.work((at - done) * own.backward);
      done = at;
    };
    std::size_t poll = 0;
    for (const double full : full_at_[of]) {
      for (; poll < polls.size() && polls[poll] < full; ++poll) {
        if (polls[poll] <= done) continue;  // The order differs from most steps.
        until(polls[poll]);
        writer.into.push_back({Kind::poll});
      }
      if (full > done) until(full);
      writer.push();
    }
    until(1);
  }

  static std::size_t nodes_of(const StepGraph& graph) {
    return 1 + *std::max_element(graph.node_of_rank.begin(), graph.node_of_rank.end());
  }

  const Replay& run_;
  const StepGraph& graph_;
  const Scenario& scenario_;
  std::size_t ranks_ = 0, steps_ = 0;
  std::size_t a_step_ = 0;  // Most collectives of a step.
  std::vector<Position> positions_;
  std::vector<std::vector<double>> full_at_;  // Indexed by recorded rank.
  std::vector<std::uint64_t> sizes_;
  std::vector<double> costs_;  // Of a rank's part of each bucket.
  std::vector<double> update_share_;
  double more_updates_ns_ = 0;
  std::vector<std::string> notes_;
};

struct Outcome {
  double median_ms = 0, mean_ms = 0;
  std::optional<Range> interval;
  std::vector<std::string> notes;
};

// `cost_factor` multiplies the cost of transfers. Returns nullopt if ranks wait for each other forever, which
// is possible if they record their own collectives at different places of a step.
std::optional<Outcome> outcome_of(const Replay& run, const Scenario& scenario, double cost_factor = 1,
                                  std::size_t operations = most_operations) {
  ChangedProgram program(run, scenario, cost_factor, operations);
  const auto marks = replay(program, run.graph.wake_ns);
  std::vector<double> periods_ms;
  for (std::size_t i = 0; i + 1 < marks.size(); ++i)
    periods_ms.push_back(((i + 2 == marks.size() ? marks[i + 1].last : marks[i + 1].first) - marks[i].first) *
                         1e-6);
  if (periods_ms.size() < program.steps()) return std::nullopt;
  return Outcome{quantile(periods_ms, 0.5), marks.back().last * 1e-6 / static_cast<double>(periods_ms.size()),
                 median_interval(periods_ms), program.notes()};
}

double corrected_mean_ms(const Replay& replay, const Outcome& outcome) {
  return std::max(0.0, outcome.mean_ms - replay.mean_error * replay.measured_mean_ms);
}

std::string why_not(const Replay& replay, const Scenario& scenario) {
  const auto& graph = replay.graph;
  const int recorded = static_cast<int>(graph.steps.size());
  const int ranks = scenario.ranks.value_or(recorded);
  if (scenario.bucket_mb && graph.gradients.empty())
    return "the run does not record when its gradients were ready (older versions did not), or has "
           "none";
  const bool whole = replay.compression.empty() || replay.compression == "none" ||
                     replay.compression == "bfloat16:between-nodes";
  if (scenario.bucket_mb && !whole && !is_half(replay.compression))
    return "with " + replay.compression + ", the transferred bytes do not follow from the bucket sizes";
  if (replay.is_sample() && (scenario.ranks || !scenario.delays.empty()))
    return fmt::format("only {} of the run's {} ranks can be replayed", recorded, replay.size);
  const bool costs = scenario.bucket_mb || scenario.bandwidth || scenario.ranks;
  if (costs && graph.buckets.empty() && scenario.ranks != recorded)
    return "the run reduces no buckets, so the cost of their transfers is unknown";
  if (costs && !graph.part.known()) return graph.part.unknown;
  if (recorded == 1 && ranks > 1)
    return "a run of one rank does not contain the cost of transfers between ranks";
  const bool one_node = std::all_of(graph.node_of_rank.begin(), graph.node_of_rank.end(),
                                    [](std::size_t node) { return node == 0; });
  if (one_node && ranks > recorded && graph.cores > 0 && ranks * graph.threads > graph.cores)
    return fmt::format("the node has {} cores, and the replay does not know how {} ranks would share them",
                       static_cast<int>(graph.cores), ranks);
  for (const auto& delay : scenario.delays)
    if (delay.rank >= ranks) return fmt::format("the run has no rank {} to delay", delay.rank);
  return "";
}

void say_limits(const Replay& replay, const Scenario& scenario, Prediction& prediction) {
  if (replay.is_sample())
    prediction.notes.push_back(
        fmt::format("replayed with {} of {} ranks", replay.graph.steps.size(), replay.size));
  if (scenario.no_straggler && replay.late_ranks.empty())
    prediction.notes.emplace_back("no rank is late by itself, so nothing changes");
  if (scenario.no_checkpoint)
    prediction.notes.emplace_back("the effect of background writing on the steps is not included");
  if ((scenario.bucket_mb || scenario.bandwidth) && replay.graph.part.sizes == 1)
    prediction.notes.emplace_back("all buckets had one size, so only their bandwidth is known");
}

}  // namespace

Replay replay_of(const RunModel& run, const RunMetrics& metrics, const std::vector<Straggler>& stragglers) {
  Replay replay;
  replay.graph = graph_of(run, metrics);
  replay.size = metrics.size();
  replay.bucket_mb = run.facts.bucket_mb.value_or(0);
  replay.compression = run.facts.compression.value_or("");
  replay.kind = kind_of_program(run);
  replay.global_batch = run.facts.global_batch.value_or(0);
  if (!replay.known()) return replay;
  for (const auto& straggler : stragglers)
    if (straggler.pattern != LatePattern::rotating) replay.late_ranks.push_back(straggler.rank_index);
  if (replay.late_ranks.size() == metrics.ranks.size()) replay.late_ranks.clear();
  const auto first = static_cast<std::ptrdiff_t>(replay.graph.first_step);
  const std::vector<double> periods(metrics.window.periods_ms.begin() + first,
                                    metrics.window.periods_ms.end());
  replay.measured_ms = quantile(periods, 0.5);
  replay.measured_mean_ms =
      std::accumulate(periods.begin(), periods.end(), 0.0) / static_cast<double>(periods.size());
  replay.measured_ci95 = median_interval(periods).value_or(Range{replay.measured_ms, replay.measured_ms});
  if (!(replay.measured_ms > 0)) {
    replay.graph.unknown = "the steps of the run have no duration";
    return replay;
  }
  const auto as_it_was = outcome_of(replay, {});
  if (!as_it_was) {
    replay.graph.unknown = wait_forever;
    return replay;
  }
  replay.error = as_it_was->median_ms / replay.measured_ms - 1;
  replay.mean_error = as_it_was->mean_ms / replay.measured_mean_ms - 1;
  return replay;
}

Prediction predict(const Replay& replay, const Scenario& scenario) {
  Prediction prediction;
  prediction.scenario = scenario;
  prediction.unknown = replay.known() ? why_not(replay, scenario) : replay.graph.unknown;
  if (!prediction.unknown.empty()) return prediction;
  const auto outcome = outcome_of(replay, scenario);
  if (!outcome) {
    prediction.unknown = wait_forever;
    return prediction;
  }
  // The error of the replay is added, not multiplied, because it does not grow with a delay
  // or with slower transfers.
  prediction.step_ms = std::max(0.0, outcome->median_ms - replay.error * replay.measured_ms);
  prediction.change = prediction.step_ms / replay.measured_ms - 1;
  prediction.mean_step_ms = corrected_mean_ms(replay, *outcome);
  prediction.mean_change = prediction.mean_step_ms / replay.measured_mean_ms - 1;
  // The band includes the choice of steps, the cost of transfers, and the error of the replay.
  const auto relative = [&](const std::optional<Range>& range, double middle) {
    return range && middle > 0 ? (range->high - range->low) / 2 / middle : 0.0;
  };
  const double chance = std::hypot(relative(replay.measured_ci95, replay.measured_ms),
                                   relative(outcome->interval, outcome->median_ms));
  double costs = 0;
  if (replay.graph.part.known() && !replay.graph.buckets.empty())
    for (const double factor : {1 - std::min(0.9, replay.graph.part.spread), 1 + replay.graph.part.spread})
      if (const auto other = outcome_of(replay, scenario, factor))
        costs = std::max(costs, std::abs(other->median_ms / outcome->median_ms - 1));
  const double half = prediction.step_ms * std::hypot(chance, std::hypot(costs, replay.error));
  prediction.band = {std::max(0.0, prediction.step_ms - half), prediction.step_ms + half};
  const double ranks = scenario.ranks ? *scenario.ranks : static_cast<double>(replay.size);
  const double batch = replay.global_batch * ranks / static_cast<double>(replay.size);
  prediction.throughput = batch > 0 ? Figure::known(batch * 1e3 / prediction.mean_step_ms)
                                    : Figure::because("run.json has no global_batch");
  prediction.notes = outcome->notes;
  say_limits(replay, scenario, prediction);
  return prediction;
}

std::optional<double> mean_change(const Replay& replay, const Scenario& scenario) {
  if (!replay.known() || !why_not(replay, scenario).empty()) return std::nullopt;
  const auto outcome = outcome_of(replay, scenario);
  if (!outcome) return std::nullopt;
  return corrected_mean_ms(replay, *outcome) / replay.measured_mean_ms - 1;
}

std::optional<double> quick_step_ms(const Replay& replay, const Scenario& scenario) {
  if (!replay.known() || !why_not(replay, scenario).empty()) return std::nullopt;
  const auto outcome = outcome_of(replay, scenario, 1, few_operations);
  return outcome ? std::optional(outcome->median_ms) : std::nullopt;
}

}  // namespace farandole

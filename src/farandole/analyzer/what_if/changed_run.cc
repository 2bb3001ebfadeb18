#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <utility>

#include "farandole/analyzer/metrics/collectives.h"
#include "farandole/analyzer/what_if/what_if.h"
#include "farandole/base/bucket_plan.h"

namespace farandole {
namespace {

constexpr double bytes_a_mib = 1024 * 1024;
constexpr std::size_t least_simulated_steps = 5;

// Generates a run under a scenario for the simulation.
class ChangedProgram {
 public:
  ChangedProgram(const Replay& replay, const Scenario& scenario, double cost_factor, std::size_t most)
      : replay_(replay), graph_(replay.graph), scenario_(scenario), cost_factor_(cost_factor) {
    ranks_ = static_cast<std::size_t>(scenario.ranks.value_or(static_cast<int>(graph_.steps.size())));
    choose_steps(most);
    place_ranks();
    choose_buckets();
    find_costs();
    find_updates();
  }

  SimulatedRun simulate() {
    return StepSimulation(machine_, costs_,
                          [this](std::size_t rank, std::size_t step, std::vector<StepOperation>& into) {
                            program(rank, step, into);
                          })
        .run(steps_);
  }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::size_t recorded() const { return graph_.steps.size(); }
  std::size_t recorded_steps() const { return graph_.steps.front().size(); }

  void choose_steps(std::size_t most) {
    const auto a_step = ranks_ * (8 + 2 * std::max(graph_.gradients.size(), graph_.buckets.size()));
    steps_ = std::clamp<std::size_t>(most / a_step, std::min(least_simulated_steps, recorded_steps()),
                                     recorded_steps());
  }

  // If the run had one node, all ranks are placed on it. Otherwise the number of nodes changes, and each node
  // keeps its number of ranks.
  void place_ranks() {
    const auto& nodes = graph_.node_of_rank;
    const std::size_t count = 1 + *std::max_element(nodes.begin(), nodes.end());
    const std::size_t a_node = (recorded() + count - 1) / count;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      machine_.node_of_rank.push_back(rank < recorded() ? nodes[rank] : count == 1 ? 0 : rank / a_node);
    machine_.cores = graph_.cores;
    machine_.threads = graph_.threads;
    machine_.wake_ns = graph_.wake_ns;
    machine_.caller_driven = graph_.caller_driven;
    machine_.parts_are_work = count == 1;
    if (ranks_ == recorded()) return;
    notes_.push_back(count == 1 ? "all ranks run on the single node of the run and share its cores"
                                : fmt::format("the nodes are as in the run, with {} ranks each", a_node));
    if (count == 1 && graph_.cores <= 0)
      notes_.emplace_back("the number of cores is unknown and assumed to be sufficient");
  }

  void choose_buckets() {
    full_at_ = graph_.bucket_at;
    sizes_ = graph_.buckets;
    if (!scenario_.bucket_mb) return;
    const auto plan = plan_recorded_buckets(graph_.gradients,
                                            {static_cast<std::size_t>(*scenario_.bucket_mb * bytes_a_mib)});
    sizes_.clear();
    for (auto& at : full_at_) at.clear();
    // Bytes on the wire, as in graph_.buckets.
    const std::uint64_t divisor = is_half(replay_.compression) ? 2 : 1;
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

  void find_costs() {
    const double bandwidth = scenario_.bandwidth.value_or(1);
    const double p = static_cast<double>(ranks_);
    const double q = static_cast<double>(recorded());
    double latency = 1, volume = 1;
    if (!machine_.parts_are_work && ranks_ != recorded()) {
      latency = std::log2(std::max(2.0, p)) / std::log2(std::max(2.0, q));
      volume = bus_factor("allreduce", ranks_) / std::max(0.5, bus_factor("allreduce", recorded()));
      notes_.emplace_back(
          "the latency is assumed to grow with the logarithm of the ranks, and the bytes on the wire as in "
          "a ring");
    }
    const bool shrinks = is_half(scenario_.compression) && !is_half(replay_.compression);
    const bool grows = scenario_.compression == "none" && is_half(replay_.compression);
    if (shrinks) {
      machine_.caller_driven = false;  // Compressors need the thread.
      notes_.emplace_back(
          "the cost of the conversion is not in this run; it is assumed to be 1.5 times the cost of reducing "
          "the same bytes");
    }
    for (const auto size : sizes_) {
      const double bytes = static_cast<double>(size) * (shrinks ? 0.5 : grows ? 2 : 1);
      const auto& line = graph_.part.line_for(bytes);
      BucketCost cost;
      if (ranks_ > 1) {
        cost.part_ns = cost_factor_ * (line.alpha_ns * latency + line.beta_ns * bytes * volume / bandwidth);
        const double conversion = 1.5 * graph_.part.line_for(bytes).beta_ns * static_cast<double>(size);
        if (shrinks) cost.before_ns = cost.after_ns = conversion / 2;
      }
      costs_.push_back(cost);
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
    return std::find(replay_.late_ranks.begin(), replay_.late_ranks.end(), rank) != replay_.late_ranks.end();
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

  void program(std::size_t rank, std::size_t step, std::vector<StepOperation>& into) const {
    const auto [of, at] = source(rank, step);
    const auto& own = graph_.steps[of][at];
    for (const auto& delay : scenario_.delays)
      if (static_cast<std::size_t>(delay.rank) == rank)
        into.push_back({StepOperation::Kind::pause, 0, delay.ms * 1e6});
    // Collectives are those of the current step, so that all ranks have the same number of them.
    Writer writer{into, graph_.steps[rank % recorded()][step].collectives, scenario_.no_checkpoint};
    using Part = OwnCollective::Part;
    writer.work(own.before);
    writer.begin(Part::backward);
    backward(writer, of, own);
    writer.begin(Part::tail);
    if (!graph_.updates_between && !sizes_.empty()) await(into, sizes_.size() - 1);
    for (std::size_t b = 0; b < sizes_.size(); ++b) {
      if (graph_.updates_between) await(into, b);
      writer.work(std::max(0.0, own.tail + more_updates_ns_) * update_share_[b]);
    }
    if (sizes_.empty()) writer.work(own.tail);
    writer.begin(Part::after);
    writer.work(own.after);
    if (!scenario_.no_checkpoint) writer.work(own.checkpoint);
    writer.finish();
  }

  static void await(std::vector<StepOperation>& into, std::size_t bucket) {
    into.push_back({StepOperation::Kind::await, static_cast<std::uint32_t>(bucket), 0});
  }

  // Writes work and, at their recorded places, the collectives of the training thread.
  struct Writer {
    std::vector<StepOperation>& into;
    const std::vector<OwnCollective>& collectives;
    bool no_checkpoint;
    std::size_t next = 0;
    std::uint32_t met = 0;
    OwnCollective::Part part = OwnCollective::Part::before;
    double done = 0;  // Work of the part that is already written.

    // First writes the remaining collectives of the previous part.
    void begin(OwnCollective::Part begun) {
      for (; next < collectives.size() && collectives[next].part < begun; ++next) meet(collectives[next]);
      part = begun;
      done = 0;
    }
    void work(double ns) {
      const double until = done + ns;
      for (; next < collectives.size() && collectives[next].part <= part && collectives[next].at < until;
           ++next) {
        const double before = collectives[next].at - done;
        if (before > 0) {
          into.push_back({StepOperation::Kind::work, 0, before});
          done += before;
        }
        meet(collectives[next]);
      }
      if (until > done) into.push_back({StepOperation::Kind::work, 0, until - done});
      done = until;
    }
    void finish() {
      for (; next < collectives.size(); ++next) meet(collectives[next]);
    }
    void meet(const OwnCollective& collective) {
      if (no_checkpoint && collective.of_checkpoint) return;
      into.push_back({StepOperation::Kind::meet, met++, collective.ns});
    }
  };

  void backward(Writer& writer, std::size_t of, const RankStep& own) const {
    static const std::vector<double> none;
    const auto& polls = machine_.caller_driven && !graph_.gradient_at.empty() ? graph_.gradient_at[of] : none;
    const auto& pushes = full_at_[of];
    double done = 0;
    const auto until = [&](double at) {
      writer.work((at - done) * own.backward);
      done = at;
    };
    std::size_t poll = 0;
    for (std::size_t push = 0; push < pushes.size(); ++push) {
      for (; poll < polls.size() && polls[poll] < pushes[push]; ++poll) {
        if (polls[poll] <= done) continue;  // The order differs from most steps.
        until(polls[poll]);
        writer.into.push_back({StepOperation::Kind::poll, 0, 0});
      }
      if (pushes[push] > done) until(pushes[push]);
      writer.into.push_back({StepOperation::Kind::push, 0, 0});
      if (machine_.caller_driven) writer.into.push_back({StepOperation::Kind::poll, 0, 0});
    }
    until(1);
  }

  const Replay& replay_;
  const StepGraph& graph_;
  const Scenario& scenario_;
  const double cost_factor_;
  std::size_t ranks_ = 0, steps_ = 0;
  SimulatedMachine machine_;
  std::vector<std::vector<double>> full_at_;  // Indexed by recorded rank.
  std::vector<std::uint64_t> sizes_;
  std::vector<BucketCost> costs_;
  std::vector<double> update_share_;
  double more_updates_ns_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace

ChangedRun run_changed(const Replay& replay, const Scenario& scenario, double cost_factor,
                       std::size_t most_operations) {
  ChangedProgram program(replay, scenario, cost_factor, most_operations);
  return {program.simulate(), program.notes()};
}

}  // namespace farandole

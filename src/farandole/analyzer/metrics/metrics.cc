#include "farandole/analyzer/metrics/metrics.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace farandole {
namespace {

std::vector<CategorySpan> clip(std::vector<CategorySpan> spans, Interval window) {
  for (auto& span : spans) {
    span.start = std::max(span.start, window.start);
    span.end = std::min(span.end, window.end);
  }
  std::erase_if(spans, [](const CategorySpan& span) { return span.start >= span.end; });
  return spans;
}

IntervalSet union_of(const std::vector<CategorySpan>& spans, std::initializer_list<Category> categories) {
  static_assert(category_names.size() <= 32);
  std::uint32_t wanted = 0;
  for (const auto category : categories) wanted |= 1U << static_cast<unsigned>(category);
  std::vector<Interval> found;
  for (const auto& span : spans)
    if ((wanted >> static_cast<unsigned>(span.category) & 1U) != 0) found.push_back({span.start, span.end});
  return IntervalSet(std::move(found));
}

IntervalSet collectives_of(const RankModel& rank, Interval window) {
  std::vector<Interval> found;
  for (const auto& span : rank.collectives()) found.push_back({span.start, span.end});
  return intersect(IntervalSet(std::move(found)), IntervalSet({window}));
}

// For each kept step, the phases from the end of the previous kept step to its end. Therefore time that
// delays the arrivals of a step counts in that step.
std::vector<PhaseTimes> phases_by_step(const std::vector<CategorySpan>& pieces, const Window& window) {
  std::vector<PhaseTimes> steps(window.steps.size());
  std::size_t step = 0;
  for (const auto& piece : pieces) {
    auto start = piece.start;
    while (step < steps.size() && start < piece.end) {
      const auto end = std::min(piece.end, window.steps[step].end);
      if (start < end) steps[step][static_cast<std::size_t>(phase_of(piece.category))] += end - start;
      start = std::max(start, end);
      if (start < piece.end) ++step;
    }
  }
  return steps;
}

// The work of one GPU in the window.
struct GpuSets {
  IntervalSet compute, communication, copies;
  IntervalSet kernels;  // compute and communication
};

GpuSets sets_of(const std::vector<NamedSpan>& work, Interval window) {
  std::vector<Interval> compute, communication, copies;
  for (const auto& span : work) {
    const Interval part{std::max(span.start, window.start), std::min(span.end, window.end)};
    if (part.start >= part.end) continue;
    (span.category == Category::gpu_kernel      ? compute
     : span.category == Category::communication ? communication
                                                : copies)
        .push_back(part);
  }
  GpuSets sets{IntervalSet(std::move(compute)),
               IntervalSet(std::move(communication)),
               IntervalSet(std::move(copies)),
               {}};
  sets.kernels = unite(sets.compute, sets.communication);
  return sets;
}

// The time in which work runs that was launched in a phase. The spans come in the order of their starts.
class PhaseCover {
 public:
  explicit PhaseCover(Interval window) : window_(window) { ends_.fill(window.start); }

  void add(const NamedSpan& span) {
    if (span.phase == phase_count) return;
    auto& end = ends_[span.phase];
    const auto until = std::min(span.end, window_.end);
    times_[span.phase] += std::max<std::int64_t>(0, until - std::max(span.start, end));
    end = std::max(end, until);
  }
  const PhaseTimes& times() const { return times_; }

 private:
  const Interval window_;
  PhaseTimes ends_{}, times_{};
};

// From the start of the first work in the window to the end of the last; empty if there is none.
Interval extent_of(const std::vector<GpuSets>& devices) {
  Interval extent{INT64_MAX, INT64_MIN};
  for (const auto& sets : devices)
    for (const auto* set : {&sets.kernels, &sets.copies}) {
      if (set->intervals().empty()) continue;
      extent.start = std::min(extent.start, set->intervals().front().start);
      extent.end = std::max(extent.end, set->intervals().back().end);
    }
  return extent;
}

// Times of one GPU. `work` is ordered by start.
GpuTimes gpu_times(const std::vector<NamedSpan>& work, const GpuSets& sets,
                   const std::vector<CategorySpan>& pieces, Interval window) {
  GpuTimes times;
  times.window = window.end - window.start;
  times.kernels = sets.kernels.measure();
  times.compute = sets.compute.measure();
  times.communication_only = times.kernels - times.compute;
  const auto busy = unite(sets.kernels, sets.copies).measure();
  times.memcpy_only = busy - times.kernels;
  times.idle = times.window - busy;
  times.idle_causes = idle_times(work, pieces, window);
  PhaseCover cover(window);
  for (const auto& span : work) cover.add(span);
  times.by_phase = cover.times();
  return times;
}

void add(const GpuTimes& times, GpuTimes& sum) {
  for (const auto part : {&GpuTimes::window, &GpuTimes::kernels, &GpuTimes::compute,
                          &GpuTimes::communication_only, &GpuTimes::memcpy_only, &GpuTimes::idle})
    sum.*part += times.*part;
  for (std::size_t i = 0; i < idle_cause_count; ++i) sum.idle_causes[i] += times.idle_causes[i];
  for (std::size_t i = 0; i < phase_count; ++i) sum.by_phase[i] += times.by_phase[i];
}

// Assigns to each part the time that no earlier part has taken, so that the sum is the window.
Shares share_out(const IntervalSet& compute, const IntervalSet& communication, const IntervalSet& waits,
                 const IntervalSet& copies, const std::vector<CategorySpan>& pieces, std::int64_t window) {
  Shares shares{};
  IntervalSet taken = compute;
  const auto take = [&](Share share, const IntervalSet& part) {
    const auto before = taken.measure();
    taken = unite(taken, part);
    shares[static_cast<std::size_t>(share)] = taken.measure() - before;
  };
  shares[static_cast<std::size_t>(Share::compute)] = compute.measure();
  take(Share::waiting, waits);
  take(Share::transfer, communication);
  take(Share::copies, copies);
  take(Share::data, intervals_of(pieces, Category::data));
  take(Share::checkpoint, intervals_of(pieces, Category::checkpoint));
  take(Share::evaluation, intervals_of(pieces, Category::evaluation));
  // On GPU runs, forward, backward and optimizer of the host are not compute.
  take(Share::other,
       union_of(pieces, {Category::other, Category::forward, Category::backward, Category::optimizer}));
  shares[static_cast<std::size_t>(Share::idle)] = window - taken.measure();
  return shares;
}

// The wait for a core is known as a sum only. It lengthens all that the training thread does, and so each
// part of it in proportion. What lengthens a collective stays there. On GPUs, the compute and the collectives
// are not on this thread.
void take_core_wait(std::int64_t ns, bool of_gpu, Shares& shares) {
  std::int64_t all = 0;
  for (const auto share : shares) all += share;
  if (ns <= 0 || all <= 0) return;
  const double part = std::min(1.0, static_cast<double>(ns) / static_cast<double>(all));
  for (const auto from :
       {Share::compute, Share::other, Share::data, Share::checkpoint, Share::evaluation, Share::idle}) {
    if (from == Share::compute && of_gpu) continue;
    auto& share = shares[static_cast<std::size_t>(from)];
    const auto taken = static_cast<std::int64_t>(part * static_cast<double>(share));
    share -= taken;
    shares[static_cast<std::size_t>(Share::core)] += taken;
  }
}

std::int64_t last_end_of(const RankModel& rank, const Window& window) {
  std::int64_t last = window.steps.empty() ? window.time.end : window.time.start;
  for (const auto& step : rank.steps)
    if (step.end <= window.time.end) last = std::max(last, step.end);
  return last;
}

// Measures sets in the interval of each step, which extends to the start of the next step. Together the
// intervals cover the window.
class StepTiles {
 public:
  StepTiles(const Window& window, std::vector<StepTotals>& totals) : totals_(totals) {
    for (const auto& step : window.steps) bounds_.push_back(step.start);
    bounds_.push_back(window.of_gpu ? window.steps.back().end : window.time.end);
  }
  void add(const IntervalSet& set, double StepTotals::*part, double weight) {
    const auto measures = measure_between(set, bounds_);
    for (std::size_t i = 0; i < measures.size(); ++i)
      totals_[i].*part += weight * static_cast<double>(measures[i]);
  }

 private:
  std::vector<std::int64_t> bounds_;
  std::vector<StepTotals>& totals_;
};

// The part of the window that the rank recorded. Another profiler may begin and end at other times on each
// rank; then the time outside is not idle, but unknown.
std::int64_t recorded_of(const RankModel& rank, const Window& window) {
  if (!window.of_gpu) return window.length();
  return std::max<std::int64_t>(
      0, std::min(rank.extent.end, window.time.end) - std::max(rank.extent.start, window.time.start));
}

// Measures one GPU of a rank, or a rank without GPUs, and adds to `metrics` and, with `weight`, to `totals`.
void measure_device(const GpuSets& gpu, const IntervalSet& compute, const IntervalSet& communication,
                    const IntervalSet& waits, const std::vector<CategorySpan>& pieces, const Window& window,
                    std::int64_t core_wait, double weight, RankMetrics& metrics,
                    std::vector<StepTotals>& totals) {
  const auto overlap = intersect(communication, compute);
  const auto waiting = intersect(communication, waits);
  metrics.communication += communication.measure();
  metrics.overlap += overlap.measure();
  metrics.waiting += waiting.measure();
  auto shares = share_out(compute, communication, waiting, gpu.copies, pieces, metrics.recorded);
  take_core_wait(core_wait, metrics.gpu.has_value(), shares);
  const auto on_core = shares[static_cast<std::size_t>(Share::compute)];
  metrics.compute += on_core;
  for (std::size_t i = 0; i < share_count; ++i) metrics.shares[i] += shares[i];
  if (window.steps.empty()) return;
  StepTiles tiles(window, totals);
  const auto all_compute = std::max<std::int64_t>(compute.measure(), 1);
  tiles.add(compute, &StepTotals::compute,
            weight * static_cast<double>(on_core) / static_cast<double>(all_compute));
  tiles.add(communication, &StepTotals::communication, weight);
  tiles.add(overlap, &StepTotals::overlap, weight);
  tiles.add(waiting, &StepTotals::waiting, weight);
  tiles.add(gpu.kernels, &StepTotals::kernels, weight);
}

// Returns all metrics except the lateness, and adds to `totals`, which has one entry per kept step. `waits`:
// when the collectives of this rank waited for the last rank.
RankMetrics measure_rank(const RankModel& rank, const Window& window, const IntervalSet& waits,
                         std::vector<StepTotals>& totals, GpuWorkTotals& gpu_work) {
  RankMetrics metrics;
  metrics.rank = rank.rank;
  metrics.host = rank.host;
  metrics.process = rank.process;
  metrics.recorded = recorded_of(rank, window);
  const auto all_pieces = innermost(rank.training());
  const auto pieces = clip(all_pieces, window.time);
  for (const auto& piece : pieces)
    metrics.phases[static_cast<std::size_t>(phase_of(piece.category))] += piece.end - piece.start;
  metrics.step_phases = phases_by_step(pieces, window);
  metrics.last_end = last_end_of(rank, window);
  metrics.training_waits = union_of(pieces, {Category::wait, Category::communication}).intervals();

  std::vector<std::vector<NamedSpan>> work;
  std::vector<GpuSets> devices;
  for (const auto& [device, packed] : rank.packed_gpu) {
    work.push_back(rank.gpu_of(device));
    devices.push_back(sets_of(work.back(), window.time));
    gpu_work.add(work.back(), window.time);
  }
  const auto extent = extent_of(devices);
  const bool has_collectives = std::ranges::any_of(
      devices, [](const GpuSets& sets) { return !sets.communication.intervals().empty(); });
  if (extent.start < extent.end) metrics.gpu.emplace();
  const auto of_host = has_collectives ? IntervalSet() : collectives_of(rank, window.time);
  const auto count = static_cast<std::int64_t>(std::max<std::size_t>(devices.size(), 1));
  if (devices.empty()) devices.emplace_back();
  const auto core_wait = rank.resources.core_wait.between(window.time);
  auto device = rank.packed_gpu.begin();
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (metrics.gpu) {
      const auto times = gpu_times(work[i], devices[i], all_pieces, window.of_gpu ? extent : window.time);
      add(times, *metrics.gpu);
      if (count > 1) metrics.devices.emplace_back((device++)->first, times);
    }
    measure_device(devices[i],
                   metrics.gpu
                       ? devices[i].compute
                       : union_of(pieces, {Category::forward, Category::backward, Category::optimizer}),
                   has_collectives ? devices[i].communication : of_host, waits, pieces, window, core_wait,
                   1 / static_cast<double>(count), metrics, totals);
  }

  for (const auto part :
       {&RankMetrics::compute, &RankMetrics::communication, &RankMetrics::overlap, &RankMetrics::waiting})
    metrics.*part /= count;
  for (auto& share : metrics.shares) share /= count;
  metrics.exposed = metrics.communication - metrics.overlap;
  metrics.transfer = metrics.communication - metrics.waiting;
  metrics.core_wait_known = rank.resources.core_wait.known();
  metrics.cores.assign(rank.resources.cores.begin(), rank.resources.cores.end());
  metrics.idle_cores = rank.resources.idle_cores;
  const auto share = [&](Share which) { return metrics.shares[static_cast<std::size_t>(which)]; };
  metrics.core_wait = share(Share::core);
  metrics.other = share(Share::copies) + share(Share::data) + share(Share::checkpoint) +
                  share(Share::evaluation) + share(Share::other) + share(Share::core);
  metrics.idle = share(Share::idle);
  return metrics;
}

// Stores for each kept step the latest arrival of each rank. Collectives of a single rank do not count.
void add_lateness(const CollectiveMatches& matches, const std::vector<std::optional<std::size_t>>& step_of,
                  const std::vector<CollectivePart>& parts, std::size_t steps, RankMetrics& rank) {
  std::vector<double> late_ms(steps, -1);
  for (const auto& part : parts) {
    const auto& match = matches.matches[part.match];
    if (match.part_count < 2 || !step_of[part.match]) continue;
    auto& late = late_ms[*step_of[part.match]];
    late = std::max(late, static_cast<double>(part.start - match.first_arrival) * 1e-6);
  }
  for (std::size_t step = 0; step < steps; ++step) {
    if (late_ms[step] < 0) continue;
    rank.lateness_steps.push_back(step);
    rank.step_lateness_ms.push_back(late_ms[step]);
  }
}

// Measures rank after rank, so that only the events of one rank are unpacked at a time.
void measure_ranks(const RunModel& run, RunMetrics& metrics) {
  const auto& matches = metrics.matches;
  std::vector<std::optional<std::size_t>> step_of;
  for (const auto& match : matches.matches) step_of.push_back(step_at(metrics.window, match.last_arrival));
  metrics.steps.resize(metrics.window.steps.size());
  GpuWorkTotals gpu_work(run.names);
  for (std::size_t i = 0; i < run.ranks.size(); ++i) {
    std::vector<Interval> waits;
    for (const auto& part : matches.parts[i]) waits.push_back(wait_of(matches.matches[part.match], part));
    metrics.ranks.push_back(
        measure_rank(run.ranks[i], metrics.window, IntervalSet(std::move(waits)), metrics.steps, gpu_work));
    metrics.ranks.back().clock_known = run.ranks[i].clock_residual_us.has_value();
    add_lateness(matches, step_of, matches.parts[i], metrics.window.steps.size(), metrics.ranks.back());
  }
  metrics.kernels = gpu_work.kernels();
  metrics.copies = gpu_work.copies();
}

// Returns which ranks' clocks could not be aligned, if there are several ranks.
std::string why_no_alignment(const RunMetrics& metrics) {
  std::size_t others = 0;
  std::optional<int> first;
  for (const auto& rank : metrics.ranks) {
    if (rank.clock_known || metrics.ranks.size() < 2) continue;
    others += first ? 1 : 0;
    if (!first) first = rank.rank;
  }
  if (!first) return "";
  return fmt::format("the clock of rank {}{} could not be aligned", *first,
                     others > 0 ? fmt::format(" and of {} more ranks", others) : "");
}

bool is_one_of_several(const RunModel& run, const CollectiveMatches& matches) {
  if (run.ranks.size() != 1) return false;
  return run.world_size() > 1 ||
         std::any_of(matches.matches.begin(), matches.matches.end(),
                     [](const CollectiveMatch& match) { return match.ranks > match.part_count; });
}

// Waiting can be measured only between two ranks with aligned clocks.
std::string why_no_waiting(const RunModel& run, const RunMetrics& metrics) {
  if (is_one_of_several(run, metrics.matches)) return one_rank_of_several;
  const auto known = std::count_if(metrics.ranks.begin(), metrics.ranks.end(),
                                   [](const RankMetrics& rank) { return rank.clock_known; });
  return known < 2 ? metrics.no_alignment : "";
}

void warn_of_clocks(const RunModel& run, RunMetrics& metrics) {
  if (metrics.matches.unmatched > 0)
    metrics.warnings.push_back(
        fmt::format("{} collectives lack a rank of their communicator; their waiting is unknown and "
                    "counted as transfer",
                    metrics.matches.unmatched));
  if (!metrics.no_alignment.empty())
    metrics.warnings.push_back(metrics.no_alignment +
                               "; its lateness is unknown, and its waiting counts as transfer, so "
                               "bandwidths are lower bounds");
  if (run.ranks.size() > 1 && !run.clocks_stated)
    metrics.warnings.push_back("the trace does not record its clock error, so lateness may be wrong");
}

Figure throughput_of(const RunModel& run, const RunMetrics& metrics) {
  if (!metrics.window.no_steps.empty()) return Figure::because(metrics.window.no_steps);
  if (!run.facts.global_batch)
    return Figure::because(fmt::format(
        "{}; {}",
        run.facts.found ? "run.json has no global_batch" : "there is no run.json with the global batch",
        remedy(Topic::global_batch, metrics.kind)));
  const auto samples = *run.facts.global_batch * static_cast<double>(metrics.window.steps.size());
  return Figure::ratio(samples, metrics.window_ns() * 1e-9, empty_window);
}

Figure steps_per_s_of(const RunMetrics& metrics) {
  if (!metrics.window.no_steps.empty()) return Figure::because(metrics.window.no_steps);
  return Figure::ratio(static_cast<double>(metrics.window.steps.size()), metrics.window_ns() * 1e-9,
                       empty_window);
}

// Farandole records the updates of the parameters in every program. The program may not record
// forward and backward.
std::string why_no_compute(const RunModel& run, const RunMetrics& metrics) {
  const auto any_rank = [&](auto has) {
    return std::any_of(metrics.ranks.begin(), metrics.ranks.end(), has);
  };
  const auto time_of = [](const RankMetrics& rank, Phase phase) {
    return rank.phases[static_cast<std::size_t>(phase)];
  };
  if (run.source == TraceSource::farandole) {
    if (any_rank([&](const RankMetrics& rank) {
          return rank.gpu || time_of(rank, Phase::forward) > 0 || time_of(rank, Phase::backward) > 0;
        }))
      return "";
    if (any_rank([&](const RankMetrics& rank) { return time_of(rank, Phase::evaluation) > 0; }))
      return "the program evaluates and does not train, so useful compute is unknown";
    return std::string(
               "the program records no phases (forward, backward, optimizer), so useful compute is unknown; ") +
           remedy(Topic::record_phases, metrics.kind);
  }
  if (!run.hidden_compute.empty()) return run.hidden_compute;
  const bool some = any_rank([](const RankMetrics& rank) { return rank.compute > 0 || rank.gpu; });
  if (run.source == TraceSource::horovod) return "a Horovod timeline does not record what the ranks compute";
  return some ? "" : "the trace has neither GPU kernels nor spans of forward, backward and optimizer";
}

std::string why_no_gpu(const RunModel& run) {
  if (run.source == TraceSource::horovod) return "a Horovod timeline does not record GPU kernels";
  if (!run.hidden_compute.empty()) return run.hidden_compute;
  if (run.source == TraceSource::kineto)
    return "the trace has no GPU kernels; nothing ran on GPUs, or the profiler did not record them";
  if (!run.facts.device) return "the trace has no GPU kernels, and there is no run.json with the device";
  if (*run.facts.device == "cpu") return "no GPU in this run";
  return "the device is " + *run.facts.device + ", but the trace has no GPU kernels";
}

std::size_t count_nodes(const RunModel& run) {
  std::set<std::string> hosts;
  for (const auto& rank : run.ranks)
    if (!rank.host.empty()) hosts.insert(rank.host);
  if (run.world_size() > run.ranks.size() && run.facts.hosts.size() == run.world_size())
    for (const auto& host : run.facts.hosts)
      if (!host.empty()) hosts.insert(host);
  return hosts.size();
}

Figure mean_fraction(double sum_ns, const RunMetrics& metrics) {
  double recorded = 0;
  for (const auto& rank : metrics.ranks) recorded += static_cast<double>(rank.recorded);
  return Figure::ratio(sum_ns, recorded, empty_window);
}

bool is_known(const RunMetrics& metrics, std::int64_t RankMetrics::*part, double ns) {
  if (metrics.no_compute.empty() || part == &RankMetrics::communication || part == &RankMetrics::waiting ||
      part == &RankMetrics::transfer)
    return true;
  return part != &RankMetrics::exposed && part != &RankMetrics::idle && ns > 0;
}

}  // namespace

Figure RunMetrics::fraction(std::int64_t RankMetrics::*part) const {
  if (!no_waiting.empty() && (part == &RankMetrics::waiting || part == &RankMetrics::transfer))
    return Figure::because(no_waiting);
  const bool across = part == &RankMetrics::waiting || part == &RankMetrics::transfer;
  double sum = 0;
  double recorded = 0;
  for (const auto& rank : ranks) {
    if (across && !rank.clock_known && !no_alignment.empty()) continue;
    sum += static_cast<double>(rank.*part);
    recorded += static_cast<double>(rank.recorded);
  }
  if (!is_known(*this, part, sum)) return Figure::because(no_compute);
  return Figure::ratio(sum, recorded, empty_window);
}

Figure RunMetrics::phase_fraction(std::size_t phase) const {
  double sum = 0;
  for (const auto& rank : ranks) sum += static_cast<double>(rank.phases[phase]);
  return sum > 0 || no_compute.empty() ? mean_fraction(sum, *this) : Figure::because(no_compute);
}

Figure RunMetrics::seconds(const RankMetrics& rank, std::int64_t RankMetrics::*part) const {
  const auto ns = static_cast<double>(rank.*part);
  return is_known(*this, part, ns) ? Figure::known(ns * 1e-9) : Figure::because(no_compute);
}

Figure RunMetrics::phase_seconds(const RankMetrics& rank, std::size_t phase) const {
  const auto ns = static_cast<double>(rank.phases[phase]);
  return ns > 0 || no_compute.empty() ? Figure::known(ns * 1e-9) : Figure::because(no_compute);
}

bool RunMetrics::has_phases() const {
  return std::any_of(ranks.begin(), ranks.end(), [](const RankMetrics& rank) {
    return std::any_of(rank.phases.begin(), rank.phases.end(), [](std::int64_t ns) { return ns > 0; });
  });
}

double RunMetrics::share(Share share) const {
  double sum = 0;
  for (const auto& rank : ranks) sum += static_cast<double>(rank.shares[static_cast<std::size_t>(share)]);
  return mean_fraction(sum, *this).value.value_or(0);
}

std::optional<std::size_t> step_at(const Window& window, std::int64_t time) {
  const auto after = std::upper_bound(window.steps.begin(), window.steps.end(), time,
                                      [](std::int64_t t, const Interval& step) { return t < step.start; });
  if (after == window.steps.begin()) return std::nullopt;
  return static_cast<std::size_t>(after - window.steps.begin()) - 1;
}

// The sums are double, because the total time of many ranks may exceed 64 bits.
std::optional<GpuShares> gpu_shares(const std::vector<const GpuTimes*>& all) {
  const auto sum = [&](auto part) {
    double ns = 0;
    for (const auto* times : all) ns += static_cast<double>(part(*times));
    return ns;
  };
  const double window = sum([](const GpuTimes& times) { return times.window; });
  if (!(window > 0)) return std::nullopt;
  GpuShares shares;
  shares.utilization = sum([](const GpuTimes& times) { return times.kernels; }) / window;
  shares.compute = sum([](const GpuTimes& times) { return times.compute; }) / window;
  shares.communication_only = sum([](const GpuTimes& times) { return times.communication_only; }) / window;
  shares.memcpy_only = sum([](const GpuTimes& times) { return times.memcpy_only; }) / window;
  shares.idle = sum([](const GpuTimes& times) { return times.idle; }) / window;
  for (std::size_t i = 0; i < idle_cause_count; ++i)
    shares.idle_causes[i] = sum([&](const GpuTimes& times) { return times.idle_causes[i]; }) / window;
  for (std::size_t i = 0; i < phase_count; ++i)
    shares.by_phase[i] = sum([&](const GpuTimes& times) { return times.by_phase[i]; }) / window;
  return shares;
}

std::optional<GpuShares> gpu_shares(const RunMetrics& metrics) {
  std::vector<const GpuTimes*> all;
  for (const auto& rank : metrics.ranks)
    if (rank.gpu) all.push_back(&*rank.gpu);
  return gpu_shares(all);
}

RunMetrics measure(const RunModel& run) {
  RunMetrics metrics;
  metrics.source = run.source;
  metrics.warnings = run.warnings;
  metrics.kind = kind_of_program(run);
  metrics.window = choose_window(run, metrics.warnings);
  metrics.matches = match_collectives(run, metrics.window.time, !metrics.window.no_steps.empty());
  metrics.collectives = collective_table(run, metrics.matches);
  metrics.mpi_calls = mpi_call_table(run, metrics.window.time);
  metrics.nodes = count_nodes(run);
  metrics.world_size = run.world_size();
  metrics.clock_floor_ms = clock_error_ms(run);
  measure_ranks(run, metrics);
  if (std::none_of(metrics.ranks.begin(), metrics.ranks.end(), [](const auto& rank) { return rank.gpu; }))
    metrics.no_gpu = why_no_gpu(run);
  metrics.no_compute = why_no_compute(run, metrics);
  metrics.no_alignment = why_no_alignment(metrics);
  metrics.no_waiting = why_no_waiting(run, metrics);
  if (!metrics.no_waiting.empty())
    for (auto& row : metrics.collectives) {
      row.wait_us = row.last_share = row.late_us = Figure::because(metrics.no_waiting);
      row.last_rank.reset();
    }
  metrics.throughput = throughput_of(run, metrics);
  metrics.steps_per_s = steps_per_s_of(metrics);
  metrics.critical_path = find_critical_path(run, metrics);
  add_efficiencies(metrics);
  add_intervals(run.facts, metrics);
  warn_of_clocks(run, metrics);
  return metrics;
}

}  // namespace farandole

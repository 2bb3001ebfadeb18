#include "farandole/analyzer/metrics/rank_metrics.h"

#include <algorithm>

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

IntervalSet kernels_of(const std::vector<CategorySpan>& gpu) {
  return union_of(gpu, {Category::gpu_kernel, Category::communication});
}

// Times over all GPU work. `window` is in ns; 0 means from the start of the first kernel or copy to the end
// of the last one.
GpuTimes gpu_times(std::vector<CategorySpan> gpu, std::int64_t window) {
  if (window == 0) {
    const auto work =
        union_of(gpu, {Category::gpu_kernel, Category::communication, Category::gpu_memcpy}).intervals();
    if (!work.empty()) window = work.back().end - work.front().start;
  }
  const auto compute = union_of(gpu, {Category::gpu_kernel});
  const auto kernels = kernels_of(gpu);
  const auto busy = unite(kernels, union_of(gpu, {Category::gpu_memcpy}));
  GpuTimes times;
  times.window = window;
  times.kernels = kernels.measure();
  times.compute = compute.measure();
  times.communication_only = times.kernels - times.compute;
  times.memcpy_only = busy.measure() - times.kernels;
  times.idle = window - busy.measure();
  return times;
}

void add_phases(const RankModel& rank, Interval window, GpuTimes& times) {
  for (std::size_t phase = 0; phase < phase_count; ++phase)
    times.by_phase[phase] = union_of(clip(rank.gpu_launched_in(phase), window),
                                     {Category::gpu_kernel, Category::communication, Category::gpu_memcpy})
                                .measure();
}

// Assigns to each part the time that no earlier part has taken, so that the sum is the window.
Shares share_out(const IntervalSet& compute, const IntervalSet& communication, const IntervalSet& waits,
                 const std::vector<CategorySpan>& pieces, std::int64_t window) {
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
  take(Share::data, intervals_of(pieces, Category::data));
  take(Share::checkpoint, intervals_of(pieces, Category::checkpoint));
  take(Share::evaluation, intervals_of(pieces, Category::evaluation));
  // On GPU runs, forward, backward and optimizer of the host are not compute.
  take(Share::other,
       union_of(pieces, {Category::other, Category::forward, Category::backward, Category::optimizer}));
  shares[static_cast<std::size_t>(Share::idle)] = window - taken.measure();
  return shares;
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
  void add(const IntervalSet& set, double StepTotals::*part) {
    const auto measures = measure_between(set, bounds_);
    for (std::size_t i = 0; i < measures.size(); ++i) totals_[i].*part += static_cast<double>(measures[i]);
  }

 private:
  std::vector<std::int64_t> bounds_;
  std::vector<StepTotals>& totals_;
};

}  // namespace

RankMetrics measure_rank(const RankModel& rank, const Window& window, const IntervalSet& waits,
                         std::vector<StepTotals>& totals) {
  RankMetrics metrics;
  metrics.rank = rank.rank;
  metrics.host = rank.host;
  const auto pieces = clip(innermost(rank.training()), window.time);
  for (const auto& piece : pieces)
    metrics.phases[static_cast<std::size_t>(phase_of(piece.category))] += piece.end - piece.start;
  metrics.step_phases = phases_by_step(pieces, window);
  metrics.last_end = last_end_of(rank, window);
  metrics.training_waits = union_of(pieces, {Category::wait, Category::communication}).intervals();

  const auto gpu = clip(rank.gpu(), window.time);
  const bool has_kernels = !union_of(gpu, {Category::gpu_kernel}).intervals().empty();
  auto compute = union_of(pieces, {Category::forward, Category::backward, Category::optimizer});
  if (has_kernels) compute = union_of(gpu, {Category::gpu_kernel});
  auto communication = union_of(gpu, {Category::communication});
  if (communication.intervals().empty()) communication = collectives_of(rank, window.time);
  if (!gpu.empty()) {
    metrics.gpu = gpu_times(gpu, window.of_gpu ? 0 : window.length());
    add_phases(rank, window.time, *metrics.gpu);
  }

  const auto overlap = intersect(communication, compute);
  const auto waiting = intersect(communication, waits);
  metrics.compute = compute.measure();
  metrics.communication = communication.measure();
  metrics.overlap = overlap.measure();
  metrics.exposed = metrics.communication - metrics.overlap;
  metrics.waiting = waiting.measure();
  metrics.transfer = metrics.communication - metrics.waiting;
  metrics.shares = share_out(compute, communication, waiting, pieces, window.length());
  const auto share = [&](Share which) { return metrics.shares[static_cast<std::size_t>(which)]; };
  metrics.other =
      share(Share::data) + share(Share::checkpoint) + share(Share::evaluation) + share(Share::other);
  metrics.idle = share(Share::idle);
  if (window.steps.empty()) return metrics;
  StepTiles tiles(window, totals);
  tiles.add(compute, &StepTotals::compute);
  tiles.add(communication, &StepTotals::communication);
  tiles.add(overlap, &StepTotals::overlap);
  tiles.add(waiting, &StepTotals::waiting);
  if (metrics.gpu) tiles.add(kernels_of(gpu), &StepTotals::kernels);
  return metrics;
}

}  // namespace farandole

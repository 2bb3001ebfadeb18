#include "farandole/analyzer/metrics/window.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <optional>

#include "farandole/analyzer/statistics/statistics.h"
#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

std::vector<std::int64_t> numbers_of(const RankModel& rank) {
  std::vector<std::int64_t> numbers;
  for (const auto& step : rank.steps) numbers.push_back(step.number);
  return numbers;
}

std::vector<std::int64_t> common_numbers(const RunModel& run, std::vector<std::string>& warnings) {
  std::vector<std::int64_t> common;
  std::vector<int> without;
  bool first = true;
  std::size_t most = 0;
  for (const auto& rank : run.ranks) {
    if (rank.steps.empty()) {
      without.push_back(rank.rank);
      continue;
    }
    auto numbers = numbers_of(rank);
    most = std::max(most, numbers.size());
    if (first) {
      common = std::move(numbers);
    } else {
      std::vector<std::int64_t> both;
      std::set_intersection(common.begin(), common.end(), numbers.begin(), numbers.end(),
                            std::back_inserter(both));
      common = std::move(both);
    }
    first = false;
  }
  if (!without.empty() && without.size() < run.ranks.size())
    warnings.push_back(fmt::format("{} {} no steps and cannot be used to choose the window",
                                   describe_ranks(without), without.size() == 1 ? "has" : "have"));
  if (common.size() < most)
    warnings.push_back(fmt::format("only {} of {} steps are recorded on all ranks; the window has only those",
                                   common.size(), most));
  return common;
}

Interval extent_of(const RunModel& run) {
  Interval extent{INT64_MAX, INT64_MIN};
  for (const auto& rank : run.ranks) {
    extent.start = std::min(extent.start, rank.extent.start);
    extent.end = std::max(extent.end, rank.extent.end);
  }
  return extent.start <= extent.end ? extent : Interval{};
}

// Returns the time from the start of the first GPU kernel or copy to the end of the last.
std::optional<Interval> gpu_extent_of(const RunModel& run) {
  Interval extent{INT64_MAX, INT64_MIN};
  for (const auto& rank : run.ranks)
    for (const auto& span : rank.gpu()) {
      extent.start = std::min(extent.start, span.start);
      extent.end = std::max(extent.end, span.end);
    }
  return extent.start < extent.end ? std::optional(extent) : std::nullopt;
}

struct CommonStep {
  Interval time{INT64_MAX, INT64_MIN};
  std::int64_t longest = 0;
  std::int64_t number = 0;
};

std::vector<CommonStep> measure_steps(const RunModel& run, const std::vector<std::int64_t>& numbers) {
  std::vector<CommonStep> steps(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) steps[i].number = numbers[i];
  for (const auto& rank : run.ranks) {
    auto own = rank.steps.begin();
    for (std::size_t i = 0; i < numbers.size() && !rank.steps.empty(); ++i) {
      while (own->number < numbers[i]) ++own;
      steps[i].time.start = std::min(steps[i].time.start, own->start);
      steps[i].time.end = std::max(steps[i].time.end, own->end);
      steps[i].longest = std::max(steps[i].longest, own->end - own->start);
    }
  }
  return steps;
}

struct StepRange {
  std::size_t first, last;
};

std::int64_t end_of(const std::vector<CommonStep>& steps, std::size_t i) {
  return i + 1 < steps.size() ? steps[i + 1].time.start : steps[i].time.end;
}

std::vector<Interval> gpu_work_of(const RankModel& rank) {
  std::vector<Interval> work;
  for (const auto& span : rank.gpu()) work.push_back({span.start, span.end});
  return IntervalSet(std::move(work)).intervals();
}

// By step, whether all ranks with GPUs have work in it.
std::vector<char> have_gpu_work(const std::vector<std::vector<Interval>>& work,
                                const std::vector<CommonStep>& steps) {
  std::vector<char> have(steps.size(), 1);
  for (const auto& of_rank : work) {
    auto next = of_rank.begin();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      while (next != of_rank.end() && next->end <= steps[i].time.start) ++next;
      if (next == of_rank.end() || next->start >= end_of(steps, i)) have[i] = 0;
    }
  }
  return have;
}

// A recorder that records a sample leaves out many steps. A GPU may do nothing in one that was recorded.
std::vector<StepRange> recorded_parts(const std::vector<char>& have) {
  constexpr std::size_t gap = 3;
  std::vector<StepRange> parts;
  for (std::size_t i = 0; i < have.size(); ++i) {
    if (have[i] == 0) continue;
    if (parts.empty() || i - parts.back().last > gap)
      parts.push_back({i, i});
    else
      parts.back().last = i;
  }
  return parts;
}

// GPUs run behind their hosts, so the record may begin or end within a step: such a step counts only if no
// other has more.
StepRange without_edges(StepRange part, const std::vector<std::vector<Interval>>& work,
                        const std::vector<CommonStep>& steps) {
  Interval recorded{steps[part.first].time.start, end_of(steps, part.last)};  // on all ranks with GPUs
  for (const auto& of_rank : work) {
    const auto first = std::ranges::find_if(
        of_rank, [&, start = recorded.start](const Interval& piece) { return piece.end > start; });
    const auto behind = std::ranges::find_if(
        of_rank, [end = end_of(steps, part.last)](const Interval& piece) { return piece.start >= end; });
    recorded.start = std::max(recorded.start, first->start);
    recorded.end = std::min(recorded.end, std::prev(behind)->end);
  }
  std::vector<double> covered;
  for (std::size_t i = part.first; i <= part.last; ++i) {
    const auto inside =
        std::min(end_of(steps, i), recorded.end) - std::max(steps[i].time.start, recorded.start);
    const auto length = end_of(steps, i) - steps[i].time.start;
    covered.push_back(length > 0 ? static_cast<double>(inside) / static_cast<double>(length) : 0);
  }
  const double enough = std::min(0.9, *std::ranges::max_element(covered));
  while (covered[part.last - part.first] < enough) --part.last;
  std::size_t skipped = 0;
  while (covered[skipped] < enough) ++skipped;
  return {part.first + skipped, part.last};
}

// Returns the longest sequence of steps of which the work of GPUs was recorded, and of equal ones the last,
// if there are steps of which it was not recorded.
std::optional<StepRange> steps_with_gpu(const RunModel& run, const std::vector<CommonStep>& steps) {
  std::vector<std::vector<Interval>> work;
  for (const auto& rank : run.ranks)
    if (auto of_rank = gpu_work_of(rank); !of_rank.empty()) work.push_back(std::move(of_rank));
  if (work.empty() || steps.empty()) return std::nullopt;
  const auto parts = recorded_parts(have_gpu_work(work, steps));
  if (parts.empty()) return std::nullopt;
  if (parts.size() == 1 && parts[0].first == 0 && parts[0].last + 1 == steps.size()) return std::nullopt;
  std::optional<StepRange> longest;
  for (const auto part : parts) {
    const auto kept = without_edges(part, work, steps);
    if (!longest || kept.last - kept.first >= longest->last - longest->first) longest = kept;
  }
  return longest;
}

// Removes the steps of which the work of GPUs was not recorded. Returns whether there are any.
bool keep_steps_with_gpu(const RunModel& run, std::vector<CommonStep>& steps,
                         std::vector<std::string>& warnings) {
  const auto part = steps_with_gpu(run, steps);
  if (!part) return false;
  const auto [first, last] = *part;
  const auto which = first == last ? fmt::format("step {}", steps[first].number)
                                   : fmt::format("steps {} to {}", steps[first].number, steps[last].number);
  warnings.push_back(fmt::format(
      "the work of GPUs was recorded in a part of the run; all figures are those of {}, of {} steps", which,
      steps.size()));
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(last) + 1, steps.end());
  steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(first));
  return true;
}

std::string why_no_steps(const RunModel& run) {
  std::string why = "the trace has no step that all ranks have";
  const bool no_steps = std::all_of(run.ranks.begin(), run.ranks.end(),
                                    [](const RankModel& rank) { return rank.steps.empty(); });
  if (no_steps && run.source == TraceSource::farandole)
    why += std::string("; ") + remedy(Topic::number_steps, kind_of_program(run));
  return why;
}

}  // namespace

std::vector<std::size_t> Window::outliers() const {
  std::vector<std::size_t> found;
  if (step_ms.size() < 6) return found;
  const double median = quantile(step_ms, 0.5);
  std::vector<double> deviations;
  for (const double ms : step_ms) deviations.push_back(std::abs(ms - median));
  const double bound = std::max(1.5 * median, median + 8 * quantile(deviations, 0.5));
  for (std::size_t i = 0; i < step_ms.size(); ++i)
    if (step_ms[i] > bound) found.push_back(i);
  return found;
}

std::int64_t warmup_of(std::int64_t steps) {
  if (steps <= 1) return 0;
  return std::clamp<std::int64_t>(steps / 10, 1, 5);
}

Window choose_window(const RunModel& run, std::vector<std::string>& warnings) {
  Window window;
  auto steps = measure_steps(run, common_numbers(run, warnings));
  std::sort(steps.begin(), steps.end(),
            [](const CommonStep& a, const CommonStep& b) { return a.time.start < b.time.start; });
  const bool others =
      run.source == TraceSource::kineto || run.source == TraceSource::nsys || run.source == TraceSource::xla;
  const auto gpu = others ? gpu_extent_of(run) : std::nullopt;
  const auto warmup = gpu ? 0 : warmup_of(static_cast<std::int64_t>(steps.size()));
  const auto begin = steps.empty() ? 0 : steps[static_cast<std::size_t>(warmup)].time.start;
  window.of_part = !others && keep_steps_with_gpu(run, steps, warnings);
  const auto kept = std::find_if(steps.begin(), steps.end(),
                                 [&](const CommonStep& step) { return step.time.start >= begin; });
  if (kept != steps.end()) {  // Otherwise the work of GPUs was recorded in warm-up steps only.
    window.warmup_steps = kept - steps.begin();
    steps.erase(steps.begin(), kept);
  }
  if (steps.empty() && !gpu) {
    window.no_steps = why_no_steps(run);
    window.time = extent_of(run);
    return window;
  }
  window.of_gpu = gpu.has_value();
  if (steps.empty()) window.no_steps = why_no_steps(run);
  window.time = gpu ? *gpu : steps.front().time;
  for (const auto& step : steps) {
    if (!gpu) window.time.end = std::max(window.time.end, step.time.end);
    window.steps.push_back(step.time);
    window.step_numbers.push_back(step.number);
    window.step_ms.push_back(static_cast<double>(step.longest) * 1e-6);
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto next = i + 1 < steps.size() ? steps[i + 1].time.start
                      : gpu                ? steps[i].time.end
                                           : window.time.end;
    window.periods_ms.push_back(static_cast<double>(next - steps[i].time.start) * 1e-6);
  }
  return window;
}

}  // namespace farandole

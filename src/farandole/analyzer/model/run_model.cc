#include "farandole/analyzer/model/run_model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {
namespace {

template <class Span>
std::vector<Span> shifted(std::vector<Span> spans, std::int64_t ns) {
  if (ns == 0) return spans;
  for (auto& span : spans) {
    span.start += ns;
    span.end += ns;
  }
  return spans;
}

template <class Span>
std::vector<Span> by_start(std::vector<Span> spans) {
  const auto earlier = [](const Span& a, const Span& b) { return a.start < b.start; };
  if (!std::is_sorted(spans.begin(), spans.end(), earlier))
    std::stable_sort(spans.begin(), spans.end(), earlier);
  return spans;
}

}  // namespace

void CounterUse::add(std::int64_t time_ns, double value) {
  if (!std::isfinite(value)) return;
  sum_ += value * static_cast<double>(std::max<std::int64_t>(0, time_ns - last_ns_));
  last_ns_ = std::max(last_ns_, time_ns);
  most_ = std::max(most_, value);
}

void SummedRate::add(std::int64_t time_ns, double percent) {
  const auto [last_ns, sum] = sums_.empty() ? std::pair<std::int64_t, double>{} : sums_.back();
  if (!std::isfinite(percent) || percent < 0 || time_ns <= last_ns) return;
  sums_.emplace_back(time_ns, sum + percent / 100 * static_cast<double>(time_ns - last_ns));
  if (sums_.size() < 4096) return;
  for (std::size_t i = 0; 2 * i + 1 < sums_.size(); ++i) sums_[i] = sums_[2 * i + 1];
  sums_.resize(sums_.size() / 2);
}

double SummedRate::until(std::int64_t time_ns) const {
  const auto after = std::partition_point(sums_.begin(), sums_.end(),
                                          [&](const auto& sample) { return sample.first < time_ns; });
  if (after == sums_.end()) return sums_.empty() ? 0 : sums_.back().second;
  const auto [begin_ns, begin] = after == sums_.begin() ? std::pair<std::int64_t, double>{} : *(after - 1);
  if (time_ns <= begin_ns) return begin;
  return begin + (after->second - begin) * static_cast<double>(time_ns - begin_ns) /
                     static_cast<double>(after->first - begin_ns);
}

std::int64_t SummedRate::between(Interval time) const {
  return static_cast<std::int64_t>(until(time.end) - until(time.start));
}

void RankModel::shift_by(std::int64_t ns) {
  shift_ns += ns;
  steps = shifted(std::move(steps), ns);
  if (extent.start > extent.end) return;
  extent.start += ns;
  extent.end += ns;
}

std::vector<CategorySpan> RankModel::training() const {
  std::vector<CategorySpan> spans;
  packed_training.unpack(spans);
  return shifted(std::move(spans), shift_ns);
}

std::vector<CollectiveSpan> RankModel::collectives() const {
  std::vector<CollectiveSpan> spans;
  for (const auto& packed : packed_collectives) packed.unpack(spans);
  return shifted(by_start(std::move(spans)), shift_ns);
}

std::vector<CategorySpan> RankModel::gpu() const {
  std::vector<CategorySpan> spans;
  for (const auto& [device, work] : packed_gpu) work.unpack(spans);
  return shifted(by_start(std::move(spans)), shift_ns);
}

std::vector<NamedSpan> RankModel::gpu_of(std::int64_t device) const {
  std::vector<NamedSpan> spans;
  if (const auto found = packed_gpu.find(device); found != packed_gpu.end()) found->second.unpack(spans);
  for (auto& span : spans) span.launch += shift_ns;
  return shifted(std::move(spans), shift_ns);
}

void RunModel::sort_ranks() {
  std::sort(ranks.begin(), ranks.end(),
            [](const RankModel& a, const RankModel& b) { return a.rank < b.rank; });
}

ProgramKind kind_of_program(const RunModel& run) {
  return run.source == TraceSource::farandole ? kind_of_program(run.facts) : ProgramKind::other;
}

std::size_t RunModel::world_size() const {
  constexpr std::int64_t most = 1 << 24;
  for (const auto& stated : {facts.ranks, header.ranks})
    if (stated && *stated > 0 && *stated <= most)
      return std::max(ranks.size(), static_cast<std::size_t>(*stated));
  return ranks.size();
}
namespace {

constexpr double most_shift_ns = 2e18;  // 63 years; a window of shifted times still fits in 64 bits.

using Ends = std::map<std::pair<std::uint16_t, std::uint32_t>, std::int64_t>;

Ends ends_of(const RankModel& rank) {
  Ends ends;
  for (const auto& span : rank.collectives())
    if (span.matchable) ends[{span.what.communicator, span.what.sequence}] = span.end;
  return ends;
}

// A rank with unknown clock is shifted so that it lies in the window of the others: the first common steps,
// or else the first events, begin together. Times of this rank are not compared with those of other ranks.
void shift_roughly(const RankModel& reference, RankModel& rank) {
  if (rank.extent.start > rank.extent.end || reference.extent.start > reference.extent.end) return;
  double shift = static_cast<double>(reference.extent.start) - static_cast<double>(rank.extent.start);
  auto own = rank.steps.cbegin();
  for (const auto& step : reference.steps) {
    while (own != rank.steps.cend() && own->number < step.number) ++own;
    if (own == rank.steps.cend() || own->number != step.number) continue;
    shift = static_cast<double>(step.start - own->start);
    break;
  }
  if (std::abs(shift) <= most_shift_ns) rank.shift_by(static_cast<std::int64_t>(shift));
}

}  // namespace

void align_by_collectives(RunModel& run) {
  const auto reference = ends_of(run.ranks.front());
  for (std::size_t i = 1; i < run.ranks.size(); ++i) {
    const auto ends = ends_of(run.ranks[i]);
    std::vector<double> differences;
    if (ends.size() == reference.size() || (run.ranks[i].has_sequences && run.ranks.front().has_sequences))
      for (const auto& [key, end] : ends)
        if (const auto other = reference.find(key); other != reference.end())
          differences.push_back(static_cast<double>(other->second - end));
    if (differences.empty()) {
      run.ranks[i].clock_residual_us = std::nullopt;
      shift_roughly(run.ranks.front(), run.ranks[i]);
      continue;
    }
    const double shift = quantile(differences, 0.5);
    if (std::abs(shift) > most_shift_ns) {
      run.ranks[i].clock_residual_us = std::nullopt;
      continue;
    }
    for (auto& difference : differences) difference = std::abs(difference - shift);
    run.ranks[i].shift_by(static_cast<std::int64_t>(shift));
    run.ranks[i].clock_residual_us = quantile(differences, 0.95) * 1e-3;
  }
}

}  // namespace farandole

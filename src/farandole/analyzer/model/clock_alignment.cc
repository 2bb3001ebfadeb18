#include "farandole/analyzer/model/clock_alignment.h"

#include <cmath>
#include <map>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {
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
    if (ends.size() == reference.size())
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

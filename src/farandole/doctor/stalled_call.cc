// Finds the collective in which a run hung.
#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <tuple>
#include <utility>

#include "farandole/doctor/diagnosis.h"

namespace farandole {
namespace {

using Key = std::pair<std::uint16_t, std::uint32_t>;  // communicator, sequence

// Returns whether the rank's newest collective ended with an error: the rank has left all its spans, but has
// not closed its recorder.
bool lost_peer_in(const RankEvidence& rank, const Activity& call) {
  constexpr std::int64_t a_moment = 1'000'000'000;
  return !rank.recorder->closed && !rank.recorder->doing && call.end_ns + a_moment >= rank.recorder->last_ns;
}

const Activity* newest_call(const RankEvidence& rank, std::uint16_t communicator) {
  if (!rank.recorder) return nullptr;
  const auto found = rank.recorder->calls.find(communicator);
  return found == rank.recorder->calls.end() ? nullptr : &found->second;
}

StalledCall collect(const std::vector<RankEvidence>& ranks, const Key& key) {
  StalledCall stalled;
  for (const auto& rank : ranks) {
    const auto* call = newest_call(rank, key.first);
    if (!rank.recorder) continue;
    if (call == nullptr || call->sequence < key.second) {
      // A rank outside the communicator's group has no call of it.
      if (call != nullptr || key.second == 0) stalled.missing.push_back(rank.rank);
    } else if (call->sequence == key.second && rank.is_stopped()) {
      // A stopped rank also delays a collective that it has left: it may not have sent all its data.
      stalled.missing.push_back(rank.rank);
    } else if (call->sequence == key.second && (call->end_ns == 0 || lost_peer_in(rank, *call))) {
      stalled.text = describe(*call);
      stalled.waiting.push_back(rank.rank);
      if (stalled.since_ns == 0 || call->start_ns < stalled.since_ns) stalled.since_ns = call->start_ns;
    }
  }
  std::stable_partition(stalled.missing.begin(), stalled.missing.end(),
                        [&](int rank) { return ranks.at(static_cast<std::size_t>(rank)).is_stopped(); });
  return stalled;
}

bool is_better(const StalledCall& a, const StalledCall& b) {
  const auto rank = [](const StalledCall& call) {
    return std::tuple(call.missing.empty(), -static_cast<std::ptrdiff_t>(call.waiting.size()), call.since_ns);
  };
  return rank(a) < rank(b);
}

}  // namespace

std::string describe(const Activity& activity) {
  if (activity.kind == RecordKind::collective)
    return fmt::format("{} #{} '{}'", activity.operation, activity.sequence, activity.name);
  const auto category = name_of(activity.category);
  return activity.name == category ? activity.name : fmt::format("{} '{}'", category, activity.name);
}

std::int64_t stall_limit_ns(const std::vector<RankEvidence>& ranks) {
  constexpr std::int64_t unknown_limit_ns = 10'000'000'000;
  std::int64_t limit = 0;
  for (const auto& rank : ranks)
    if (rank.recorder && rank.recorder->stall_limit_ns > 0)
      limit = limit == 0 ? rank.recorder->stall_limit_ns : std::min(limit, rank.recorder->stall_limit_ns);
  return limit > 0 ? limit : unknown_limit_ns;
}

std::optional<StalledCall> find_stalled_call(const std::vector<RankEvidence>& ranks) {
  std::set<Key> begun;
  for (const auto& rank : ranks)
    if (rank.recorder && !rank.recorder->closed)
      for (const auto& [communicator, call] : rank.recorder->calls)
        if (call.end_ns == 0 || lost_peer_in(rank, call)) begun.emplace(communicator, call.sequence);
  std::optional<StalledCall> best;
  for (const auto& key : begun) {
    auto stalled = collect(ranks, key);
    if (stalled.waiting.empty()) continue;
    if (!best || is_better(stalled, *best)) best = std::move(stalled);
  }
  return best;
}

}  // namespace farandole

#include "farandole/timeline/stalled_call.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <tuple>
#include <utility>

namespace farandole {
namespace {

const CallProgress* progress_in(const RankProgress& rank, std::uint32_t communicator) {
  const auto found = std::find_if(rank.calls.begin(), rank.calls.end(),
                                  [&](const auto& call) { return call.communicator == communicator; });
  return found == rank.calls.end() ? nullptr : &*found;
}

bool waits_in(const RankProgress& rank, const CallKey& key) {
  const auto* call = progress_in(rank, key.communicator);
  return rank.state == RankProgress::State::runs && call != nullptr && call->in_flight &&
         call->begun == key.sequence + 1;
}

bool waits_anywhere(const RankProgress& rank) {
  return rank.state == RankProgress::State::runs &&
         std::any_of(rank.calls.begin(), rank.calls.end(), [](const auto& call) { return call.in_flight; });
}

// True if the collective lacks this rank, which does not wait in it. A rank that does not know the
// communicator is not in its group. A rank that has begun a later collective has completed this one.
bool is_missing(const RankProgress& rank, const CallKey& key) {
  if (rank.state == RankProgress::State::gone) return true;
  const auto* call = progress_in(rank, key.communicator);
  // A stopped rank may delay a collective that it has already left, because its messages are not sent. What
  // is known of it may be older than the communicator.
  if (rank.state == RankProgress::State::stopped) return call == nullptr || call->begun <= key.sequence + 1;
  if (call == nullptr) return !rank.all_communicators && key.sequence == 0;
  return call->begun <= key.sequence;
}

StalledCall collect(std::span<const RankProgress> ranks, const CallKey& key) {
  StalledCall stalled;
  stalled.key = key;
  std::vector<int> halted, busy, victims;
  for (const auto& rank : ranks) {
    if (waits_in(rank, key)) {
      const auto* call = progress_in(rank, key.communicator);
      if (stalled.waiting.empty()) {
        stalled.text = describe_collective(call->operation, key.sequence, call->name);
        stalled.since_ns = call->since_ns;
      }
      stalled.since_ns = std::min(stalled.since_ns, call->since_ns);
      stalled.waiting.push_back(rank.rank);
    } else if (is_missing(rank, key)) {
      auto& part = rank.state != RankProgress::State::runs ? halted : waits_anywhere(rank) ? victims : busy;
      part.push_back(rank.rank);
    }
  }
  for (const auto* part : {&halted, &busy, &victims})
    stalled.missing.insert(stalled.missing.end(), part->begin(), part->end());
  stalled.victims = victims.size();
  return stalled;
}

bool is_better(const StalledCall& a, const StalledCall& b) {
  const auto order = [](const StalledCall& call) {
    return std::tuple(call.missing.empty(), -static_cast<std::ptrdiff_t>(call.waiting.size()), call.since_ns);
  };
  return order(a) < order(b);
}

}  // namespace

std::optional<StalledCall> find_stalled_call(std::span<const RankProgress> ranks) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> keys;
  for (const auto& rank : ranks)
    for (const auto& call : rank.calls)
      if (rank.state == RankProgress::State::runs && call.in_flight)
        keys.emplace(call.communicator, call.begun - 1);
  std::optional<StalledCall> best;
  for (const auto& [communicator, sequence] : keys) {
    auto stalled = collect(ranks, {communicator, sequence});
    if (!best || is_better(stalled, *best)) best = std::move(stalled);
  }
  return best;
}

std::string describe_collective(std::string_view operation, std::uint32_t sequence, std::string_view name) {
  return name.empty() || name == operation ? fmt::format("{} #{}", operation, sequence)
                                           : fmt::format("{} #{} '{}'", operation, sequence, name);
}

}  // namespace farandole

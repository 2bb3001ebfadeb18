// Finds the collective in which a run hung.
#include <algorithm>
#include <fmt/format.h>

#include "farandole/doctor/diagnosis.h"

namespace farandole {
namespace {

// Returns whether the rank's newest collective ended with an error: the rank has left all its spans, but has
// not closed its recorder.
bool lost_peer_in(const RecorderEvidence& recorder, const Activity& call) {
  constexpr std::int64_t a_moment = 1'000'000'000;
  return !recorder.doing && call.end_ns + a_moment >= recorder.last_ns;
}

}  // namespace

std::string describe(const Activity& activity) {
  if (activity.kind == RecordKind::collective)
    return describe_collective(activity.operation, activity.sequence, activity.name);
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
  std::vector<RankProgress> progress;
  for (const auto& rank : ranks) {
    if (!rank.recorder) continue;
    const auto& recorder = *rank.recorder;
    auto& to = progress.emplace_back();
    to.rank = rank.rank;
    to.all_communicators = false;
    if (rank.is_stopped()) to.state = RankProgress::State::stopped;
    for (const auto& [communicator, call] : recorder.calls)
      to.calls.push_back({communicator, call.sequence + 1,
                          !recorder.closed && (call.end_ns == 0 || lost_peer_in(recorder, call)),
                          call.start_ns, call.operation, call.name});
  }
  return find_stalled_call(progress);
}

}  // namespace farandole

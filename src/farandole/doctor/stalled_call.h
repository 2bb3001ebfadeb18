// Finds the collective in which a run hung: which ranks waited there and which ranks did not
// reach it. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farandole/doctor/run_evidence.h"

namespace farandole {

struct StalledCall {
  std::string text;          // "allreduce #17 'bucket 2'"
  std::vector<int> waiting;  // ascending
  // Ranks that are stopped come first, then those that had not begun it.
  // A rank without recorder is in neither list.
  std::vector<int> missing;
  std::int64_t since_ns = 0;  // When the first waiting rank entered, on its host's clock.
};

// A rank that waits longer than this in a collective hangs. It is the limit that the run was started with
// (--stall-seconds), or 10 s if that is unknown or means never.
std::int64_t stall_limit_ns(const std::vector<RankEvidence>& ranks);

// Among the collectives that lack a rank, returns the one in which most ranks were when their
// recorders ended; if several are equal, the one that began first. Returns nullopt if no recorder
// shows such a collective.
std::optional<StalledCall> find_stalled_call(const std::vector<RankEvidence>& ranks);

std::string describe(const Activity& activity);  // "backward", "data 'load'", "allreduce #17 'bucket 2'"

}  // namespace farandole

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
  std::string text;           // "allreduce #17 'bucket 2'"
  std::vector<int> waiting;   // ascending
  std::vector<int> missing;   // Ranks that had not begun it; a rank without recorder is in neither list.
  std::int64_t since_ns = 0;  // When the first waiting rank entered, on its host's clock.
};

// A rank that waits longer than this in a collective hangs.
inline constexpr std::int64_t long_wait_ns = 10'000'000'000;

// Among the collectives that lack a rank, returns the one in which most ranks were when their
// recorders ended; if several are equal, the one that began first. Returns nullopt if no recorder
// shows such a collective.
std::optional<StalledCall> find_stalled_call(const std::vector<RankEvidence>& ranks);

std::string describe(const Activity& activity);  // "backward", "data 'load'", "allreduce #17 'bucket 2'"

}  // namespace farandole

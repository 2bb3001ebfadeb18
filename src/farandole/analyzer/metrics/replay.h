// Replays the dependencies of a run to get its length on an ideal network, which takes
// no time. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

enum class Network { as_it_was, ideal };

// Returns the length of the window in ns under these rules: the training thread of each rank takes its
// recorded time between waits; a collective ends its recorded transfer time after the last arrival
// (ideal: immediately); a wait ends with the last collective that ended in it. If it is unknown when a
// collective that was queued behind another became ready, it is ready when it started or when the
// training thread began to wait; this overestimates the effect of the network. Uses the window, the
// matches and the ranks' waits of `metrics`.
std::int64_t replay_length(const RunMetrics& metrics, Network network);

}  // namespace farandole

// Replays a run's dependencies: what its length would be on a network that takes no time. Plain functions.
#pragma once

#include <cstdint>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

enum class Network { as_it_was, ideal };

// Length of the window in ns when each rank's training thread takes as long as it did between its waits, a
// collective ends its recorded transfer after the last rank has arrived (ideal: at once), and a wait ends
// with the last collective that ended in it. What is not known errs on the network's side: a collective that
// was queued behind another counts as ready only when it started, or when the training thread began to wait.
// Uses of `metrics` the window, the matches, and the ranks' waits.
std::int64_t replay_length(const RunMetrics& metrics, Network network);

}  // namespace farandole

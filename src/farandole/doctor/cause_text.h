// The verdict on a run that has ended, as a sentence. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "farandole/doctor/root_cause.h"

namespace farandole {

// Returns the sentence without its full stop. `time_ns` is the time of the end, or 0 if it is unknown.
std::string describe_cause(const RunEvidence& run, const RootCause& root_cause,
                           const std::optional<StalledCall>& call, std::int64_t time_ns);

// "ranks 0, 2 waited 61 s in allreduce #17 'bucket 2' for rank 1 on node1, which was in data for 62 s".
// `call` must lack at least one rank. `tense` selects "waited", or "has waited" and "have waited".
enum class Tense { past, present };
std::string describe_wait(const RunEvidence& run, const StalledCall& call, std::int64_t until_ns,
                          Tense tense);

}  // namespace farandole

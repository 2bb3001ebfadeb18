// Finds which rank ended first, and why. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farandole/doctor/diagnosis.h"

namespace farandole {

struct RootCause {
  Cause cause = Cause::unknown;
  std::optional<int> rank;        // No value: all ranks ended in the same way, or the rank is unknown.
  std::optional<RankRecord> end;  // End of that rank.
  std::string why;                // Evidence for the cause in a few words; may be "".
};

// Returns the end of each rank as its launcher recorded it, or else as its log reports it (without a time).
std::vector<RankRecord> known_ends(const RunEvidence& run);

// `run` must have ended.
RootCause find_root_cause(const RunEvidence& run, const std::optional<StalledCall>& call);

}  // namespace farandole

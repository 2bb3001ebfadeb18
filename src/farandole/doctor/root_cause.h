// Whose end came first, and of what kind it was. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farandole/doctor/diagnosis.h"

namespace farandole {

struct RootCause {
  Cause cause = Cause::unknown;
  std::optional<int> rank;        // none: all ranks share the end, or nobody knows
  std::optional<RankRecord> end;  // of that rank
  std::string why;                // what supports the cause, in a few words; "" for nothing more
};

// Each rank's end, as its launcher recorded it or else as its log says (then without a time).
std::vector<RankRecord> known_ends(const RunEvidence& run);

// Of a run of which nothing runs any more.
RootCause find_root_cause(const RunEvidence& run, const std::optional<StalledCall>& call);

}  // namespace farandole

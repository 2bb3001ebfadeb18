// Says from the contents of a run directory why the run ended or hangs. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farandole/doctor/root_cause.h"
#include "farandole/doctor/run_evidence.h"

namespace farandole {

struct Diagnosis {
  Cause cause = Cause::unknown;
  std::optional<int> rank;  // The rank that stopped first or for which the others wait.
  std::string host;
  std::optional<std::int64_t> step;
  std::string phase;                // Phase of that rank: "backward"; "" if unknown.
  std::optional<StalledCall> call;  // The collective in which other ranks waited.
  std::int64_t time_ns = 0;         // End of the rank, CLOCK_REALTIME; 0: unknown.
  std::string verdict;              // One or two sentences.
  std::vector<std::string> evidence;
  std::vector<std::string> next;  // Advice, one item per line.
};

Diagnosis diagnose(const RunEvidence& run);

// For scripts: {"farandole_doctor": 1, "verdict": …, "cause": …, "rank": …, …}. Unknown values are null.
std::string diagnosis_json(const RunEvidence& run, const Diagnosis& diagnosis);
// For users: verdict, ranks, evidence, advice.
std::string diagnosis_text(const RunEvidence& run, const Diagnosis& diagnosis);

}  // namespace farandole

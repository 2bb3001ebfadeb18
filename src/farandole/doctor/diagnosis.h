// Finds from the contents of a run directory why the run ended or hangs. A pure function.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/doctor/run_evidence.h"
#include "farandole/timeline/stalled_call.h"

namespace farandole {

// A rank that waits longer than this in a collective hangs. It is the limit that the run was started with
// (--stall-seconds), or 10 s if that is unknown or means never.
std::int64_t stall_limit_ns(const std::vector<RankEvidence>& ranks);

// What the recorders show of the collective in which the run hung. A rank without recorder neither waits nor
// is missing. Times are those of each rank's host.
std::optional<StalledCall> find_stalled_call(const std::vector<RankEvidence>& ranks);

std::string describe(const Activity& activity);  // "backward", "data 'load'", "allreduce #17 'bucket 2'"

enum class Cause {
  done,
  running,
  stalled,      // A rank did not reach a collective.
  preempted,    // Stopped after a checkpoint, or by Slurm for another job.
  requeued,     // Stopped by Slurm; Slurm will start it again.
  interrupted,  // A stop was requested, apparently by a user.
  time_limit,
  cancelled,  // By scancel.
  out_of_memory,
  killed,   // By SIGKILL from an unknown sender.
  crashed,  // By another signal.
  uncaught_exception,
  refused,  // It refused to start or to continue, and printed the reason.
  corrupt_input,
  failed,  // Another exit code.
  host_lost,
  unknown,
};
std::string_view name_of(Cause cause);  // Text as in JSON: "out of memory".

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

// Returns the last activity of the rank, or "" if it is unknown. For ranks that waited in the collective of
// the diagnosis, this is that collective.
std::string describe_last_moment(const RankEvidence& rank, const Diagnosis& diagnosis);

// For scripts: {"farandole_doctor": 1, "verdict": …, "cause": …, "rank": …, …}. Unknown values are null.
std::string diagnosis_json(const RunEvidence& run, const Diagnosis& diagnosis);
// For users: verdict, ranks, evidence, advice.
std::string diagnosis_text(const RunEvidence& run, const Diagnosis& diagnosis);

}  // namespace farandole

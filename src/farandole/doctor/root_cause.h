// Why a run ended, and in which collective it hung.
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

inline constexpr std::string_view killed_launcher = "the launcher was killed before it recorded the end";

// A rank that waits longer than this in a collective hangs. It is the limit that the run was started with
// (--stall-seconds), or 10 s if that is unknown or means never.
std::int64_t stall_limit_ns(const std::vector<RankEvidence>& ranks);

// What the recorders show of the collective in which the run hung. A rank without recorder neither waits nor
// is missing. Times are those of each rank's host.
std::optional<StalledCall> find_stalled_call(const std::vector<RankEvidence>& ranks);

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

// The rank that ended first, and why.
struct RootCause {
  Cause cause = Cause::unknown;
  std::optional<int> rank;        // No value: all ranks ended in the same way, or the rank is unknown.
  std::optional<RankRecord> end;  // End of that rank.
  std::string why;                // Evidence for the cause in a few words; may be "".
};

// Returns the end of each rank as its launcher recorded it, or else as its log reports it (without a time).
std::vector<RankRecord> known_ends(const RunEvidence& run);

// Returns whether the launcher recorded a failure, and there is no sign of any rank.
bool no_rank_began(const RunEvidence& run);

// `run` must have ended.
RootCause find_root_cause(const RunEvidence& run, const std::optional<StalledCall>& call);

}  // namespace farandole

// Why a run ended, or why it does not go on, made of what its directory says. A pure function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/doctor/run_evidence.h"
#include "farandole/doctor/stalled_call.h"

namespace farandole {

enum class Cause {
  done,
  running,
  stalled,      // a rank did not come to a collective
  preempted,    // stopped behind a checkpoint, or by Slurm for another job
  requeued,     // stopped by Slurm, to be started again
  interrupted,  // asked to stop, by a person as far as one can see
  time_limit,
  cancelled,  // by scancel
  out_of_memory,
  killed,   // SIGKILL from nobody knows where
  crashed,  // by another signal
  uncaught_exception,
  refused,  // it refused to start, or to go on, with its reason
  corrupt_input,
  failed,  // another exit code
  host_lost,
  unknown,
};
std::string_view name_of(Cause cause);  // as in JSON: "out of memory"

struct Diagnosis {
  Cause cause = Cause::unknown;
  std::optional<int> rank;  // that stopped first, or is waited for
  std::string host;
  std::optional<std::int64_t> step;
  std::string phase;                // that it was in: "backward"; "" where this is unknown
  std::optional<StalledCall> call;  // that others waited in
  std::int64_t time_ns = 0;         // of its end, CLOCK_REALTIME; 0: unknown
  std::string verdict;              // a sentence or two
  std::vector<std::string> evidence;
  std::vector<std::string> next;  // what to do, a line each
};

Diagnosis diagnose(const RunEvidence& run);

// What the rank was doing last, "" where this is unknown: for those that waited in the diagnosis' collective,
// that.
std::string describe_last_moment(const RankEvidence& rank, const Diagnosis& diagnosis);

}  // namespace farandole

// The sentences of a diagnosis and their parts.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "farandole/doctor/root_cause.h"
#include "farandole/doctor/run_evidence.h"

namespace farandole {

// The verdict on a run that has ended. Returns the sentence without its full stop. `time_ns` is the time of
// the end, or 0 if it is unknown.
std::string describe_cause(const RunEvidence& run, const RootCause& root_cause,
                           const std::optional<StalledCall>& call, std::int64_t time_ns);

// "ranks 0, 2 waited 61 s in allreduce #17 'bucket 2' for rank 1 on node1, which was in data for 62 s".
// `call` must lack at least one rank. `tense` selects "waited", or "has waited" and "have waited".
enum class Tense { past, present };
std::string describe_wait(const RunEvidence& run, const StalledCall& call, std::int64_t until_ns,
                          Tense tense);

// How a rank ended: "exit code 3", "killed: signal 9 (Killed)", "stopped: signal 15 (Terminated)".
// `with_job`: if nothing tells its end, it was that of the job, which another rank has ended.
std::string describe_end(const RankEvidence& rank, bool with_job);
// The last activity: "in backward", "in allreduce #17 'bucket 2'", "in or after data"; "" if unknown.
std::string describe_doing(const RankEvidence& rank);
std::string describe_place(const RankEvidence& rank);  // " in step 412, in backward"; "" if unknown.
std::string describe_who(const RankEvidence& rank);    // "rank 3 on node7"
std::string describe_signal(int signal);               // "signal 9 (Killed)"
std::string time_of(std::int64_t realtime_ns);         // "2026-11-21T19:20:38Z"
std::string clock_time_of(std::int64_t realtime_ns);   // "19:20:38 UTC"

}  // namespace farandole

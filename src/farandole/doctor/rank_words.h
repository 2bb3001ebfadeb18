// Descriptions of a rank's end and last activity. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <string>

#include "farandole/doctor/run_evidence.h"

namespace farandole {

// How a rank ended: "exit code 3", "killed: signal 9 (Killed)", "stopped: signal 15 (Terminated)".
std::string describe_end(const RankEvidence& rank);
// The last activity: "in backward", "in allreduce #17 'bucket 2'", "in or after data"; "" if unknown.
std::string describe_doing(const RankEvidence& rank);
std::string describe_place(const RankEvidence& rank);  // " in step 412, in backward"; "" if unknown.
std::string describe_who(const RankEvidence& rank);    // "rank 3 on node7"
std::string describe_signal(int signal);               // "signal 9 (Killed)"
std::string time_of(std::int64_t realtime_ns);         // "2026-11-21T19:20:38Z"
std::string clock_time_of(std::int64_t realtime_ns);   // "19:20:38 UTC"

}  // namespace farandole

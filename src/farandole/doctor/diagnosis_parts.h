// The parts of a diagnosis: root cause, evidence, advice, and their words. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/doctor/diagnosis.h"
#include "farandole/doctor/run_evidence.h"

namespace farandole {

inline constexpr std::string_view killed_launcher = "the launcher was killed before it recorded the end";

// The rank that ended first, and why.
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

// One option or command per line.
std::vector<std::string> advise(const RunEvidence& run, const Diagnosis& diagnosis);
// The evidence for the diagnosis, and other problems of the run, as lines for users.
std::vector<std::string> find_evidence(const RunEvidence& run, const Diagnosis& diagnosis);

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
std::string describe_end(const RankEvidence& rank);
// The last activity: "in backward", "in allreduce #17 'bucket 2'", "in or after data"; "" if unknown.
std::string describe_doing(const RankEvidence& rank);
std::string describe_place(const RankEvidence& rank);  // " in step 412, in backward"; "" if unknown.
std::string describe_who(const RankEvidence& rank);    // "rank 3 on node7"
std::string describe_signal(int signal);               // "signal 9 (Killed)"
std::string time_of(std::int64_t realtime_ns);         // "2026-11-21T19:20:38Z"
std::string clock_time_of(std::int64_t realtime_ns);   // "19:20:38 UTC"

}  // namespace farandole

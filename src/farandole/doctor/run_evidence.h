// All evidence in a run directory about the end of the run. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/run/remedies.h"
#include "farandole/base/run/run_json.h"
#include "farandole/doctor/rank_evidence.h"
#include "farandole/launch/records/job_record.h"

namespace farandole {

// A process of the launcher that is stopped (state T) on this machine. Training goes on without it, but
// output and signals do not pass, and nobody notices the end of a rank.
struct StoppedHelper {
  std::string who;  // "the launcher", "mpirun", "the supervisor of rank 1"
  std::int64_t pid = 0;
};

struct RunEvidence {
  std::filesystem::path folder;
  std::optional<JobRecord> job;
  // The ranks left records of the last start, and the launcher left none: it was killed before
  // its first record.
  bool start_unrecorded = false;
  bool launcher_alive = false;  // On this machine.
  bool lease_alive = false;     // Rank 0 lives, according to the lease of the run directory.
  RunFacts facts;               // run.json
  std::vector<StoppedHelper> stopped_helpers;
  std::vector<RankEvidence> ranks;        // Ordered by rank; as many as the run had, or as are known.
  std::optional<std::int64_t> last_step;  // From metrics.jsonl.
  std::optional<std::int64_t>
      nonfinite_since;  // The loss there is not finite from this step to the last one.
  std::optional<std::int64_t> checkpoint_step;  // The newest checkpoint; it is not verified.
  std::string other_checkpoint;             // Without one, the newest file that looks like the program's own.
  ProgramKind kind = ProgramKind::program;  // Decides in which words to advise.
  // State of the job that Slurm reports now, or reported at its end.
  std::map<std::string, std::string> slurm_state;
  std::optional<std::int64_t> free_bytes;  // On the file system of the folder, now.
  std::int64_t now_ns = 0;                 // CLOCK_REALTIME
  std::vector<std::string> troubles;       // Files that cannot be read, one per line.
};

// Throws: UserError if the folder does not exist or is not a run directory; CorruptInput if none of its
// files can be read.
RunEvidence read_run_evidence(const std::filesystem::path& folder);

}  // namespace farandole

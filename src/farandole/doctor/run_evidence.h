// All evidence in a run directory about the end of the run. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/run_json.h"
#include "farandole/doctor/log_evidence.h"
#include "farandole/doctor/recorder_evidence.h"
#include "farandole/launch/job_record.h"
#include "farandole/launch/rank_record.h"

namespace farandole {

struct RankEvidence {
  int rank = 0;
  std::string host;    // "" if it is unknown.
  bool alive = false;  // Its process runs on this machine.
  char state = '\0';   // State of that process, as proc(5) names it ('T': stopped); 0: unknown.
  std::optional<RankRecord> end;
  std::optional<RecorderEvidence> recorder;
  LogEvidence log;

  bool is_stopped() const { return state == 'T' || state == 't'; }  // by a signal, or by a debugger
};

struct RunEvidence {
  std::filesystem::path folder;
  std::optional<JobRecord> job;
  bool launcher_alive = false;                  // On this machine.
  RunFacts facts;                               // run.json
  std::vector<RankEvidence> ranks;              // Ordered by rank; as many as the run had, or as are known.
  std::optional<std::int64_t> last_step;        // From metrics.jsonl.
  std::optional<std::int64_t> checkpoint_step;  // The newest checkpoint; it is not verified.
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

// All that a run directory says about a run's end, gathered. Plain values; reading is usable from any thread.
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
  std::string host;    // "" where nobody says it
  bool alive = false;  // its process runs on this machine
  std::optional<RankRecord> end;
  std::optional<RecorderEvidence> recorder;
  LogEvidence log;
};

struct RunEvidence {
  std::filesystem::path folder;
  std::optional<JobRecord> job;
  bool launcher_alive = false;                     // on this machine
  RunFacts facts;                                  // run.json
  std::vector<RankEvidence> ranks;                 // by rank; as many as the run had, or as are known
  std::optional<std::int64_t> last_step;           // of metrics.jsonl
  std::optional<std::int64_t> checkpoint_step;     // the newest; whether it is whole is not looked at
  std::map<std::string, std::string> slurm_state;  // what Slurm says of the job now, or said at its end
  std::optional<std::int64_t> free_bytes;          // of the file system that the folder is on now
  std::int64_t now_ns = 0;                         // CLOCK_REALTIME
  std::vector<std::string> troubles;               // what cannot be read, a line each
};

// Throws UserError where the folder is not there or holds no run, CorruptInput where nothing in it can be
// read.
RunEvidence read_run_evidence(const std::filesystem::path& folder);

}  // namespace farandole

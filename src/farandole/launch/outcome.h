// The result of a job: its exit code and a one-line message. A pure function.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "farandole/launch/process/child_process.h"
#include "farandole/launch/records/rank_record.h"

namespace farandole {

struct Outcome {
  int exit_code = 0;
  std::string message;          // Without "farandole run: " and newline; "" for no message.
  bool show_held_back = false;  // The only known cause is what srun or mpirun said.
};

// `starter` is how `starter_name` (mpirun or srun) ended. `signal` is the first signal that told this
// launcher to stop, or 0. There is no message for ranks that refused to start (64, 65) or stopped to be
// requeued (75), because they have printed the reason.
Outcome outcome_of(const std::vector<RankRecord>& records, int ranks, const ChildEnd& starter,
                   const std::string& starter_name, int signal, const std::filesystem::path& log_folder);

}  // namespace farandole

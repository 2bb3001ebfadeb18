// The result of a job: its exit code and a one-line message. A pure function.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/launch/process/child_process.h"
#include "farandole/launch/records/rank_record.h"

namespace farandole {

struct Outcome {
  int exit_code = 0;
  std::string message;          // Without "farandole run: " and newline; "" for no message.
  bool show_held_back = false;  // The only known cause is what srun or mpirun said.
};

// "exit code 3" or "it was killed by signal 9 (Killed)".
std::string how_it_ended(const RankRecord& record);

// Returns the rank that, according to mpirun, has left the job without MPI_Finalize.
std::optional<int> left_without_finalize(std::string_view starter_said);

// `starter` is how `starter_name` (mpirun, srun or a supervisor) ended, and `starter_said` its words.
// `signal` is the first signal that told this launcher to stop, or 0. There is no message for ranks that
// refused to start (64, 65) or stopped to be requeued (75), because they have printed the reason.
Outcome outcome_of(const std::vector<RankRecord>& records, int ranks, const ChildEnd& starter,
                   const std::string& starter_name, std::string_view starter_said, int signal,
                   const std::filesystem::path& log_folder);

}  // namespace farandole

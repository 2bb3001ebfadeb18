// What a job's end comes to: exit code and the one line for people. A pure function, usable from any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "farandole/launch/child_process.h"
#include "farandole/launch/rank_record.h"

namespace farandole {

struct Verdict {
  int exit_code = 0;
  std::string message;         // without "farandole run: " and newline; "" for nothing to say
  bool show_left_out = false;  // the starter's own words are the only cause known
};

// `starter`: how `starter_name` (mpirun or srun) ended; `signal`: the first one that told this launcher to
// stop, or 0. Ranks that refused (64, 65) or stopped to be requeued (75) have said why themselves: no
// message.
Verdict judge(const std::vector<RankRecord>& records, int ranks, const ChildEnd& starter,
              const std::string& starter_name, int signal, const std::filesystem::path& log_folder);

}  // namespace farandole

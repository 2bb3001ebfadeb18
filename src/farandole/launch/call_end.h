// How a call of a function on ranks has ended. The launcher writes it as JSON into the folder of the caller,
// which raises it as an error: estimator/launch.cc, and farandole._runner in Python.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/launch/outcome.h"
#include "farandole/launch/records/rank_record.h"

namespace farandole {

struct CallEnd {
  int exit_code = 0;
  std::optional<int> rank;  // The rank that failed first, if it is known.
  std::string message;      // With the rank and its host; "" if the exit code is 0.
};

// `ends` are the supervisors' records. `failures` are the records that functions left in the folder of the
// caller when they failed; their last words are the error. `run`: the run directory; empty: none.
CallEnd call_end_of(const std::vector<RankRecord>& ends, const std::vector<RankRecord>& failures,
                    const Outcome& outcome, const std::filesystem::path& run);

// Writes FOLDER/end.json: {"exit_code": 1, "rank": 3 or null, "message": TEXT}. Makes the folder if
// it is gone.
void write_call_end(const std::filesystem::path& folder, const CallEnd& end);
// nullopt if the launcher was killed before it wrote the file.
std::optional<CallEnd> read_call_end(const std::filesystem::path& folder);

}  // namespace farandole

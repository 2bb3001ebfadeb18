// A rank's end, as its supervisor reports it to the launcher: in a small file, or in a line if the
// launcher's folder is not available.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/process/launch_environment.h"

namespace farandole {

struct RankRecord {
  int rank = 0;
  std::string host;
  int exit_code = 0;  // Exit code of the program; invalid if signal != 0.
  int signal = 0;     // Signal that killed the program; 0: it exited.
  // The rank ended after it was asked to stop. mpirun and srun ask all ranks when one has failed.
  bool told = false;
  std::int64_t time_ns = 0;  // CLOCK_REALTIME at its end
  // The following fields are for the diagnosis of failed runs. Records of older versions do not have them.
  std::int64_t start_ns = 0;            // CLOCK_REALTIME
  std::int64_t pid = 0;                 // Process id of the program.
  std::int64_t peak_memory_bytes = 0;   // Resident memory.
  std::int64_t memory_limit_bytes = 0;  // Limit of its control group; 0: unknown.
  int asked_signal = 0;                 // First signal that asked the rank to stop or to save; 0: none.
  std::int64_t asked_ns = 0;
  std::string out_of_memory = {};  // Why it was probably killed for lack of memory.
  std::string kernel = {};         // Kernel version of its host.
  std::string launch = {};         // JobRecord::launch
  // Run directory that the program has reported; empty: the launcher knew it, or there is none.
  std::string run_dir = {};
  std::string last_words = {};  // The end of its stderr; not part of a record_line().

  bool failed() const { return exit_code != 0 || signal != 0; }
  // The exit code that a shell would report.
  int shell_code() const { return signal != 0 ? 128 + signal : exit_code; }
};

// The record of a rank that has announced its abort before it was asked to stop. Its own exit code counts,
// not the signals that it and the others got because of the abort.
void take_abort(RankRecord& record, const AnnouncedAbort& abort);
// Adds a record for that rank of this launch if none exists, because its supervisor was killed.
void add_abort(std::vector<RankRecord>& records, const AnnouncedAbort& abort, const std::string& launch);

// Writes FOLDER/rank-0003.json, the whole file or nothing. Returns false if it cannot be written.
bool write_record(const std::filesystem::path& folder, const RankRecord& record);
// Returns the records in `folder`, ordered by rank. Unreadable records are left out.
std::vector<RankRecord> read_records(const std::filesystem::path& folder);
// Returns how many ranks have written a record.
int count_records(const std::filesystem::path& folder);

// Returns the record as one line, with its '\n'.
std::string record_line(const RankRecord& record);
// Returns the record that such a line or a file contains; nullopt if it is damaged.
std::optional<RankRecord> parse_rank_record(std::string_view text);

// Returns whether the rank ended because it lost a peer (exit code 70).
bool is_victim(const RankRecord& record);

// Returns the rank that failed first. A victim is returned only if no rank failed for another reason; a rank
// that was asked to stop is returned only if all were. Among ranks that were asked to stop, exit codes come
// before signals, because the program chose its exit code.
std::optional<RankRecord> first_failure(const std::vector<RankRecord>& records);

}  // namespace farandole

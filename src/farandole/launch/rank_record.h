// How a rank ended, passed from its supervisor to the launcher: a small file, or a marked line where the
// launcher's folder is not there. Usable from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

struct RankRecord {
  int rank = 0;
  std::string host;
  int exit_code = 0;  // of the program; meaningless where signal != 0
  int signal = 0;     // that killed it; 0: it exited
  bool told =
      false;  // it ended after somebody had asked it to stop (mpirun and srun do when another rank failed)
  std::int64_t time_ns = 0;  // CLOCK_REALTIME at its end
  // For who looks into a run that went wrong; a record of an older program has none of these.
  std::int64_t start_ns = 0;            // CLOCK_REALTIME
  std::int64_t pid = 0;                 // of the program
  std::int64_t peak_memory_bytes = 0;   // resident
  std::int64_t memory_limit_bytes = 0;  // of its control group; 0: none is known
  int asked_signal = 0;                 // the first that asked it to stop or to save; 0: none
  std::int64_t asked_ns = 0;
  std::string out_of_memory = {};  // why it seems to have been killed for want of memory
  std::string kernel = {};         // of its host
  std::string launch = {};         // JobRecord::launch
  std::string run_dir = {};        // that its program has named; empty: the launcher knew, or there is none
  std::string last_words = {};     // the end of its stderr; not in a marked line

  bool failed() const { return exit_code != 0 || signal != 0; }
  int shell_code() const { return signal != 0 ? 128 + signal : exit_code; }  // what a shell would say
};

std::int64_t real_time_ns();

// FOLDER/rank-0003.json, whole or not at all. Returns false where it cannot be written.
bool write_record(const std::filesystem::path& folder, const RankRecord& record);
// The records in `folder`, by rank; unreadable ones are left out.
std::vector<RankRecord> read_records(const std::filesystem::path& folder);
// How many ranks have written one.
int count_records(const std::filesystem::path& folder);

// A line that the launcher recognizes among those of srun's or mpirun's stderr, without '\n'.
std::string to_marked_line(const RankRecord& record);
std::optional<RankRecord> from_marked_line(std::string_view line);

// The rank to blame: the first to fail by its own doing; one that lost a peer (70) only if there is no other;
// one that had been told to stop only if all had. Exit codes before signals among those told: they are the
// program's own answer.
std::optional<RankRecord> first_failure(const std::vector<RankRecord>& records);

}  // namespace farandole

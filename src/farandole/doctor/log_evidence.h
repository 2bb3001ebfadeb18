// What a rank printed before its end: the log of `farandole run --log-dir`, or the last lines that its
// launcher kept. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farandole {

struct LogEvidence {
  bool found = false;
  std::string host;           // Host of the last start; "" if its begin is not in the part that was read.
  std::int64_t start_ns = 0;  // CLOCK_REALTIME, if the log's local time is that of this machine.
  std::optional<int> exit_code, signal;  // Of the last start, if it has ended.
  std::string error;                     // The last error message of the program, one line.
  bool uncaught_exception = false;       // The C++ runtime ended the program.
  std::string stall;                     // Summary of the last stall that was not over: several lines.
  std::string stall_end;                 // Message with which a stall ended the job.
  std::vector<std::string> losses;       // "rank 1 (pid 7 on node1) was killed by SIGKILL; rank 0 was in …"
  bool disk_full = false, memory_short = false;  // The program reported this.
  std::vector<std::string> last_lines;           // A few lines.
};

// Reads the last start in the file, at most its last 4 MiB. Never throws.
LogEvidence read_log(const std::filesystem::path& file);
// Reads lines without the marks of a log.
LogEvidence read_last_words(std::string_view text);

}  // namespace farandole

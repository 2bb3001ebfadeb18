// What a rank said before its end: the log of `farandole run --log-dir`, or the last lines that its launcher
// kept. Plain values; reading is usable from any thread.
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
  std::string host;           // of the last start; "" where its beginning is too far back
  std::int64_t start_ns = 0;  // CLOCK_REALTIME, taking the log's local time for that of this machine
  std::optional<int> exit_code, signal;  // of the last start, where it has ended
  std::string error;                // why the program ended, in its own words: its last complaint, one line
  bool uncaught_exception = false;  // the C++ runtime ended it
  std::string stall;                // the last stall that was summed up and not over: lines
  std::string stall_end;            // where a stall ended the job
  std::vector<std::string> losses;  // "rank 1 (pid 7 on node1) was killed by SIGKILL; rank 0 was in …"
  bool disk_full = false, memory_short = false;  // it complained of that
  std::vector<std::string> last_lines;           // a few
};

// Of the last start in the file, and of its last 4 MiB. Never throws.
LogEvidence read_log(const std::filesystem::path& file);
// Of lines without the log's marks.
LogEvidence read_last_words(std::string_view text);

}  // namespace farandole

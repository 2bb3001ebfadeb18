// What is known of a rank: its end, its flight recorder, and what it printed. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/launch/records/rank_record.h"
#include "farandole/timeline/recorder/recorder_format.h"

namespace farandole {

// The span or collective in which a thread is or was last.
struct Activity {
  RecordKind kind = RecordKind::span;
  Category category = Category::other;
  std::string name, operation;  // The operation is set only for a collective.
  std::uint16_t communicator = 0;
  std::uint32_t sequence = 0;
  std::int64_t start_ns = 0;  // CLOCK_REALTIME of the rank's host, as are all times here.
  std::int64_t end_ns = 0;    // 0: it has not ended.
};

// What the flight recorder of a rank tells about the rank's end.
struct RecorderEvidence {
  std::string trouble;  // The file or part that cannot be read, and the reason; "" if there is none.
  bool readable = false;
  bool closed = false;  // The rank closed its recorder before it ended.
  std::string host;
  std::uint32_t pid = 0;
  int world_size = 1;
  std::int64_t start_ns = 0;
  std::int64_t last_ns = 0;       // Time of the newest record.
  std::int64_t step = -1;         // The last step that began; -1: none.
  std::optional<Activity> doing;  // Activity of the training thread, if the rank did not close its recorder.
  std::optional<Activity> did_last;         // Its newest phase that has ended.
  std::map<std::uint16_t, Activity> calls;  // The newest collective of each communicator.
  std::int64_t stall_limit_ns = 0;  // The run reports a longer wait in a collective; 0: never, or unknown.
  std::map<std::string, std::string> facts;  // Versions, as the rank has recorded them.
};

std::string describe(const Activity& activity);  // "backward", "data 'load'", "allreduce #17 'bucket 2'"

// Never throws, whatever the file contains.
RecorderEvidence read_recorder_evidence(const std::filesystem::path& file);

// What a rank printed before its end: the log of `farandole run --log-dir`,
// or the last lines that its launcher kept.
struct LogEvidence {
  bool found = false;
  std::string host;           // Host of the last start; "" if its begin is not in the part that was read.
  std::int64_t start_ns = 0;  // CLOCK_REALTIME, if the log's local time is that of this machine.
  std::optional<int> exit_code, signal;  // Of the last start, if it has ended.
  std::string error;                     // The last error message of the program, one line.
  bool uncaught_exception = false;       // The C++ runtime ended the program.
  std::string stall;                     // Summary of the last stall that was not over: several lines.
  std::string place;                     // Of a Python program in that stall: "loader.py:118 in fetch".
  std::string stall_end;                 // Message with which a stall ended the job.
  std::vector<std::string> losses;       // "rank 1 (pid 7 on node1) was killed by SIGKILL; rank 0 was in …"
  bool disk_full = false, memory_short = false;  // The program reported this.
  std::vector<std::string> last_lines;           // A few lines.
};

// Reads the last start in the file, at most its last 4 MiB. Never throws.
LogEvidence read_log(const std::filesystem::path& file);
// Reads lines without the marks of a log.
LogEvidence read_last_words(std::string_view text);

struct RankEvidence {
  int rank = 0;
  std::string host;      // "" if it is unknown.
  bool alive = false;    // Its process runs on this machine.
  char state = '\0';     // State of that process, as proc(5) names it ('T': stopped); 0: unknown.
  std::int64_t pid = 0;  // Of that process, if `alive`.
  std::optional<RankRecord> end;
  std::optional<RecorderEvidence> recorder;
  LogEvidence log;

  bool is_stopped() const { return state == 'T' || state == 't'; }  // by a signal, or by a debugger
};

}  // namespace farandole

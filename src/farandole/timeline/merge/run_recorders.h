// The recorders' files of a finished or killed run, and how to make its trace from them.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "farandole/timeline/merge/rank_choice.h"
#include "farandole/timeline/merge/trace_merge.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

// Returns `run` itself if it is a rank's file, and its parts if it is a node's
// (timeline/recorder/node_file.h). Otherwise returns the recorders in RUN/recorder in the order of their
// names; a file that is still staged on this node (base/files/staging_file.h) is given with its local path.
// Throws: UserError if there is no file.
std::vector<std::filesystem::path> recorder_files(const std::filesystem::path& run);

// The result of reading one file.
struct RecorderReport {
  std::filesystem::path file;
  bool readable = false;
  int rank = -1;
  bool closed = false;  // false if the rank was killed or is still running
  std::uint64_t records = 0;
  std::uint64_t overwritten = 0;  // by later records, because the size of the file is limited
  std::uint64_t dropped = 0;
  std::uint64_t damaged = 0;
  std::vector<std::string> problems;  // damage, with file and offset

  bool sound() const { return readable && damaged == 0 && problems.empty(); }
};

struct RunMergeOptions {
  RankSet ranks;
  StepWindow steps;
  std::size_t merge_limit = 64;  // ranks in the trace; 0 means no limit
};

// The selected ranks of a run, ready to be merged.
struct RunRecorders {
  std::vector<RecorderReport> files;
  std::vector<RankTimeline> ranks;
  std::string left_out;  // one line about ranks above the limit, or ""
  std::string missing;   // one line about selected ranks of the run without a file, or ""
  std::string earlier;   // one line about recorders of an earlier start, which are not in `files`, or ""

  bool sound() const;  // true if all files are
};

// Opens all readable files of `files`. Of ranks that are not selected, only the header is read, because their
// clock samples may be those of a selected rank's host.
// Throws: CorruptInput if no file can be read.
// Throws: UserError if no file belongs to a selected rank.
RunRecorders open_run(const std::vector<std::filesystem::path>& files, const RunMergeOptions& options);

// The largest difference that is expected between the dates of different hosts.
inline constexpr std::int64_t clocks_differ_ns = 60'000'000'000;

// Determines to which start of a run directory a recorder belongs. A start with fewer ranks leaves the
// recorders of the other ranks as they were.
// Thread safety: any thread may call this at any time.
struct RunStart {
  std::int64_t realtime_ns = 0;
  int world_size = 0;        // 0 if unknown
  std::int64_t last_ns = 0;  // when it recorded last; 0 if unknown
};

RunStart last_of(const std::vector<RunStart>& starts);
// The ranks of one start begin at the same time, within the difference of the hosts' dates, or record at the
// same time: one may come late.
bool is_earlier(const RunStart& start, const RunStart& last);
// One line for people; "" if `recorders` is 0.
std::string earlier_starts_text(std::size_t recorders);

// What the header of a recorder of the last start says, with the values of RecorderFile.
struct RankSign {
  std::filesystem::path file;
  int rank = 0;
  std::string host;
  std::uint32_t clock = 0, process = 0;
  RunStart start;
  bool closed = false;
  bool clock_measured = false;
};
// By file name. Files that cannot be read are left out.
std::vector<RankSign> read_signs(const std::filesystem::path& run);

// False if the run has no trace, or one that is some seconds older than what its ranks have recorded.
bool has_whole_trace(const std::filesystem::path& run);

// Does what ranks without a launcher leave undone, if all of them have ended: puts the recorders of each node
// together, unless farandole run has started the ranks, and writes RUN/timeline.json.gz unless
// has_whole_trace(). Returns whether it has written a trace.
// Throws: as merge_run().
bool complete_run(const std::filesystem::path& run);

}  // namespace farandole

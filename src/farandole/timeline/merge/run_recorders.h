// The recorders' files of a run after the fact: what is left of them, and the trace of it. Used by one
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "farandole/timeline/merge/rank_set.h"
#include "farandole/timeline/merge/trace_merge.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

// RUN/recorder/*.ftl in the order of their names, or where else they lie on this node (base/staging_file.h), or
// the file itself; throws UserError where there are none.
std::vector<std::filesystem::path> recorder_files(const std::filesystem::path& run);

// What a file gave.
struct RecorderReport {
  std::filesystem::path file;
  bool readable = false;
  int rank = -1;
  bool closed = false;  // else the rank was killed, or goes on
  std::uint64_t records = 0;
  std::uint64_t overwritten = 0;  // by later ones, as the file is bounded
  std::uint64_t dropped = 0;
  std::uint64_t damaged = 0;
  std::vector<std::string> problems;  // what is damaged, with file and offset

  bool sound() const { return readable && damaged == 0 && problems.empty(); }
};

struct RunMergeOptions {
  RankSet ranks;
  StepWindow steps;
  std::size_t merge_limit = 64;  // ranks in the trace; 0: any number
};

// The ranks of a run that were asked for, ready to be merged.
struct RunRecorders {
  std::vector<RecorderReport> files;
  std::vector<RankTimeline> ranks;
  std::string left_out;  // one line about ranks above the limit; "": none
  std::string earlier;   // one line about those of an earlier start, which are not among `files`; "": none

  bool sound() const;  // all files
};

// Opens what can be read of `files`. Throws CorruptInput where nothing can, UserError where none is of the
// ranks that are asked for.
RunRecorders open_run(const std::vector<std::filesystem::path>& files, const RunMergeOptions& options);

}  // namespace farandole

// A program's timeline in a run directory, and the trace that is made of it afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "farandole/timeline/timeline.h"

namespace farandole {

// Options of a timeline that records to RUN/recorder/rank-0003.ftl under this host's name. A program of
// several processes gives each a rank of its own, from 0 to world_size - 1.
// Thread safety: any thread may call this at any time.
TimelineOptions run_timeline(const std::filesystem::path& run_dir, int rank = 0, int world_size = 1);

struct MergedRun {
  std::filesystem::path trace;
  std::uint64_t events = 0;           // of the trace
  std::uint64_t overwritten = 0;      // events that the bounded recorders no longer had
  std::uint64_t dropped = 0;          // events for which there was no room
  std::uint64_t damaged = 0;          // records that could not be read
  std::vector<std::string> problems;  // one line each: what is damaged, with file and offset
};

// Merges RUN/recorder/*.ftl into one Chrome trace on one clock, in gzip JSON; `output` empty:
// RUN/timeline.json.gz. Of more than `merge_limit` ranks, the first, last and slowest ranks and a sample of
// the others are merged; 0: all ranks. The processes need not have ended in order.
// Thread safety: any thread may call this at any time.
// Throws: UserError if there are no recorders; CorruptInput if none can be read; Error if the trace
// cannot be written.
MergedRun merge_run(const std::filesystem::path& run_dir, const std::filesystem::path& output = {},
                    std::size_t merge_limit = 64);

}  // namespace farandole

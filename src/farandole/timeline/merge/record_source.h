// One rank's records on their way into the merged trace: from its recorder's file, or as bytes that came from
// another rank. An object is used by one thread at a time.
//
// Rank 0 merges a run as follows: every rank opens its own file with open_source() and sends pack(info()) and
// then, when asked, one block after the other: the bytes of next(), an empty block at the end. Rank 0 turns
// each into received_source() and gives them all to merge_timelines(), which reads rank after rank, so that
// only one block of one rank is under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "farandole/timeline/clock/clock_model.h"
#include "farandole/timeline/merge/meetings.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

// What the merge needs to know of a rank before its records.
struct RankInfo {
  int rank = 0;
  int world_size = 1;
  std::string host;
  std::uint32_t clock = 0;  // clock_id() there; 0: unknown
  std::int64_t first_ns =
      INT64_MAX;              // the earliest record's start, on the host's clock; INT64_MAX: no record
  std::uint64_t dropped = 0;  // for want of room
  std::uint64_t damaged = 0;  // records left out
  std::int64_t start_monotonic_ns = 0;  // the same moment on the host's clock and by its date
  std::int64_t start_realtime_ns = 0;
  std::vector<RoundTrip> clock_samples;  // with rank 0; none on rank 0 itself
  std::vector<Meeting> meetings;         // a sample of its collectives
  std::vector<std::string> names;        // by Record::name and ::operation
  std::vector<RecorderThread> threads;   // by Record::track
};

class RecordSource {
 public:
  virtual ~RecordSource() = default;
  virtual const RankInfo& info() const = 0;
  // The next records, valid until the next call; empty at the end. Of one thread's records those that start
  // first come first, and of those that start together the longest, so that a span comes before what is
  // inside it.
  virtual std::span<const Record> next() = 0;
};

// Takes memory for a quarter of one thread's records at a time (sorted_records.h). Throws as RecorderFile.
std::unique_ptr<RecordSource> open_source(const std::filesystem::path& recorder_file);
std::unique_ptr<RecordSource> open_source(std::unique_ptr<RecorderFile> file);
// The records of `source` in these steps; those outside of steps only where all steps are asked for.
std::unique_ptr<RecordSource> steps_of(std::unique_ptr<RecordSource> source, const StepWindow& steps);

inline constexpr std::size_t largest_block_bytes = std::size_t{256} << 10;

std::vector<std::byte> pack(const RankInfo& info);
RankInfo unpack(std::span<const std::byte> bytes);  // throws CorruptInput

// receive() returns the rank's next block, empty at the end. Throws CorruptInput for bytes that are no
// records.
std::unique_ptr<RecordSource> received_source(RankInfo info, std::function<std::vector<std::byte>()> receive);

}  // namespace farandole

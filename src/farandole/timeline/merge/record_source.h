// One rank's records for the merged trace, either from its recorder's file or as bytes from another rank.
// Thread safety: none; use from one thread at a time.
//
// Rank 0 merges a run as follows. Every rank opens its own file with open_source() and sends pack(info()). On
// request, it then sends one block after the other: the bytes of next(), and an empty block at the end. Rank
// 0 makes a received_source() for each rank and gives all of them to merge_timelines(). That function reads
// one rank after the other, so only one block of one rank is in memory, beside the info of all ranks.
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
#include "farandole/timeline/merge/clock_refinement.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

// What the merge needs to know about a rank before its records.
struct RankInfo {
  int rank = 0;
  int world_size = 1;
  std::string host;
  std::uint32_t clock = 0;  // clock_id() of the rank; 0 if unknown
  // Earliest start of a record on the host's clock; INT64_MAX if there is no record.
  std::int64_t first_ns = INT64_MAX;
  std::int64_t last_ns = INT64_MIN;     // latest end of a record; INT64_MIN if there is no record
  std::uint64_t dropped = 0;            // events for which there was no space
  std::uint64_t damaged = 0;            // records that were left out
  std::int64_t start_monotonic_ns = 0;  // the same moment by the host's monotonic clock and by its date
  std::int64_t start_realtime_ns = 0;
  std::vector<RoundTrip> clock_samples;  // round trips with rank 0; empty on rank 0
  std::vector<Meeting> meetings;         // a sample of the rank's collectives
  std::vector<std::string> names;        // indexed by Record::name and Record::operation
  std::vector<RecorderThread> threads;   // indexed by Record::track
};

class RecordSource {
 public:
  virtual ~RecordSource() = default;
  virtual const RankInfo& info() const = 0;
  // Returns the next records, which are valid until the next call; empty at the end. The records of a thread
  // are sorted by start. Records with the same start are sorted by duration, longest first, so that a span
  // comes before the spans inside it.
  virtual std::span<const Record> next() = 0;
};

// What the file's header says. Of the records, it knows only how many there are: there are no meetings, no
// first_ns and last_ns, and `damaged` is 0.
RankInfo header_of(const RecorderFile& file);

// Needs memory for a quarter of the records of one thread at a time.
// Throws: as RecorderFile.
std::unique_ptr<RecordSource> open_source(const std::filesystem::path& recorder_file);
std::unique_ptr<RecordSource> open_source(std::unique_ptr<RecorderFile> file);
// The records of `source` in these steps. Records outside of steps are included only if
// `steps` contains all steps.
std::unique_ptr<RecordSource> steps_of(std::unique_ptr<RecordSource> source, const StepWindow& steps);

inline constexpr std::size_t largest_block_bytes = std::size_t{256} << 10;

std::vector<std::byte> pack(const RankInfo& info);
RankInfo unpack(std::span<const std::byte> bytes);  // throws CorruptInput if the bytes are damaged

// receive() returns the rank's next block, or an empty one at the end.
// Throws: CorruptInput if the bytes are not records.
std::unique_ptr<RecordSource> received_source(RankInfo info, std::function<std::vector<std::byte>()> receive);

}  // namespace farandole

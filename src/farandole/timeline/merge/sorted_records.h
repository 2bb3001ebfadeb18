// The records of one thread of a recorder's file, sorted by start in bounded memory.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "farandole/timeline/merge/meetings.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {

// The result of one pass over the records of a thread's ring.
struct RingFacts {
  std::int64_t first_ns = INT64_MAX;  // earliest start
  std::uint64_t damaged = 0;
  std::array<std::uint64_t, recorder::thread_slots> by_track{};  // number of records per track
};
RingFacts survey(const RecorderFile& file, std::size_t slot, Meetings& meetings);

// Sorts by start and, for the same start, by duration, longest first, so that a span comes before the spans
// inside it. Needs 16 bytes per record and 4 MiB. The records themselves are read again when they are
// needed; because threads record spans when they end, records that are close in the file are needed at
// nearly the same time.
class SortedRecords {
 public:
  // Selects the records of thread `slot` for `track`. `count` is their number as counted by survey().
  SortedRecords(const RecorderFile& file, std::size_t slot, std::size_t track, std::uint64_t count);

  // Returns the number of records written to `into`; 0 means the end.
  std::size_t next(std::span<Record> into);

 private:
  struct Key {
    std::int64_t start_ns;
    float duration_ns;    // rounded; for equal values, the later recorded span is the longer one
    std::uint32_t index;  // relative to first_
    bool operator<(const Key& other) const {
      if (start_ns != other.start_ns) return start_ns < other.start_ns;
      if (duration_ns != other.duration_ns) return duration_ns > other.duration_ns;
      return index > other.index;
    }
  };
  static constexpr std::size_t block_records = 1024;
  struct Block {
    std::uint64_t number = UINT64_MAX;
    std::vector<Record> records;
  };
  static void sort(std::vector<Key>& keys);
  const Record& record(std::uint64_t index);

  const RecorderFile& file_;
  const std::size_t slot_;
  const std::uint64_t first_;
  std::vector<Key> keys_;
  std::size_t given_ = 0;
  std::array<Block, 64> blocks_;
};

}  // namespace farandole

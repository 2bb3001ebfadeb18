// One thread's records of a recorder's file in the order of their start, in bounded memory. Used by one
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "farandole/timeline/merge/meetings.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {

// A pass over the records of a thread's ring.
struct RingFacts {
  std::int64_t first_ns = INT64_MAX;  // the earliest start
  std::uint64_t damaged = 0;
  std::array<std::uint64_t, recorder::thread_slots> by_track{};  // records that each track shows
};
RingFacts survey(const RecorderFile& file, std::size_t slot, Meetings& meetings);

// By start; of those that start together the longest first, so that a span comes before what is inside it.
// Takes 16 bytes a record and 4 MiB, because the records themselves are read again when they are due: threads
// record spans when they end, so those that lie together in the file are due together.
class SortedRecords {
 public:
  // Of those that thread `slot` has recorded for `track`, `count` of them as survey() found.
  SortedRecords(const RecorderFile& file, std::size_t slot, std::size_t track, std::uint64_t count);

  // The next records, at most as many as `into` holds; returns how many, 0 at the end.
  std::size_t next(std::span<Record> into);

 private:
  struct Key {
    std::int64_t start_ns;
    float duration_ns;    // rounded: where it leaves two alike, the one that was recorded last is the longer
    std::uint32_t index;  // from first_
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

// Corrects the ranks' clocks by causality: no rank can leave a collective before every rank has entered it.
// Thread safety: any thread may call this at any time. Each call needs its own data, and one thread at a time
// uses an object.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "farandole/timeline/clock/clock_model.h"
#include "farandole/timeline/recorder/recorder_format.h"

namespace farandole {

// A collective that no rank can leave before every rank has entered it, as one rank recorded it. These
// collectives bound the difference of clocks and show which ranks arrive late.
struct Meeting {
  std::uint64_t key = 0;      // communicator and sequence: equal on all ranks
  std::int64_t start_ns = 0;  // on the rank's clock
  std::int64_t end_ns = 0;
};

// How many of them a rank keeps. Rank 0 needs those of all ranks at once, which takes up to 400 MB for up to
// 4,096 ranks (24 bytes each, and 72 more while clocks are refined).
constexpr std::size_t most_meetings(int ranks) {
  constexpr std::size_t of_all = std::size_t{1} << 22, least = 1 << 10, most = 1 << 14;
  return std::clamp(of_all / static_cast<std::size_t>(ranks), least, most);
}

// A bounded sample. If there are many collectives, it keeps every second, fourth, … sequence number, so that
// all ranks keep the same ones.
class Meetings {
 public:
  // `names` are the names in the recorder's file; Record::operation is an index into them.
  Meetings(std::span<const std::string> names, std::size_t most);
  void add(const Record& record);  // of a collective
  std::vector<Meeting> take() && { return std::move(meetings_); }

 private:
  std::vector<bool> synchronises_;  // by operation
  std::size_t most_;
  std::uint64_t stride_ = 1;
  std::vector<Meeting> meetings_;
};

struct RankClock {
  ClockModel model;
  bool known = true;  // false means that the model is a guess, which collectives may correct
  std::span<const Meeting> meetings;
  int clock = -1;  // Ranks with the same number have the same clock; -1: a clock of its own.
};

// The reference is the first known clock, or the first clock if none is known. It is not changed. An unknown
// clock gets the constant shift that collectives of all of its ranks with known clocks determine; it is then
// known, with a residual. Afterwards known clocks are shifted, as lines in time and within their residuals,
// until all meetings respect causality. Violations that residuals cannot explain, for example because a
// collective failed, are not corrected.
//
// Returns the number of pairs of visits in which one rank still left before the other one entered.
std::uint64_t refine_clocks(std::span<RankClock> ranks);

}  // namespace farandole

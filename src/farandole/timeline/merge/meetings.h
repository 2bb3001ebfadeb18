// Collectives that no rank may leave before all have entered, as one rank saw them: they bound how clocks
// differ, and tell who comes late. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "farandole/timeline/recorder/recorder_format.h"

namespace farandole {

struct Meeting {
  std::uint64_t key = 0;      // communicator and sequence: equal on all ranks
  std::int64_t start_ns = 0;  // on the rank's clock
  std::int64_t end_ns = 0;
};

// A bounded sample; of many collectives every second, fourth, … sequence number, so that ranks agree.
class Meetings {
 public:
  // `names` are the recorder's, by Record::operation.
  explicit Meetings(std::span<const std::string> names, std::size_t most = std::size_t{1} << 14);
  void add(const Record& collective);
  std::vector<Meeting> take() && { return std::move(meetings_); }

 private:
  std::vector<bool> synchronises_;  // by operation
  std::size_t most_;
  std::uint64_t stride_ = 1;
  std::vector<Meeting> meetings_;
};

}  // namespace farandole

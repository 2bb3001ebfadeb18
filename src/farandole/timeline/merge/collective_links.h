// The bounded table of collectives that become flows between ranks in the merged trace.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "farandole/timeline/chrome_trace/trace_writer.h"
#include "farandole/timeline/event.h"

namespace farandole {

class CollectiveLinks {
 public:
  explicit CollectiveLinks(std::size_t most) : most_(most) {}

  void add(const Collective& what, TraceWriter::Place place, std::int64_t start_ns);
  // Writes flows for each collective that several ranks recorded: from the first rank to arrive to each other
  // rank. Each rank counts once. Returns the number of flows.
  std::uint64_t write(TraceWriter& trace);
  std::uint64_t stride() const { return stride_; }

 private:
  struct Entry {
    std::uint64_t key;  // communicator and sequence
    std::int64_t start_ns;
    std::int32_t rank;
    std::int32_t thread;
  };

  std::size_t most_;
  std::uint64_t stride_ = 1;
  std::vector<Entry> entries_;
};

}  // namespace farandole

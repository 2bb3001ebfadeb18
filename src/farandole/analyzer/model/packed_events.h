// Events in a few bytes each, as the run model keeps them until a rank's turn comes. Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "farandole/analyzer/metrics/phases.h"
#include "farandole/timeline/event.h"

namespace farandole {

// One rank's part of a collective; `start` is its arrival.
struct CollectiveSpan {
  std::int64_t start = 0;
  std::int64_t end = 0;
  Collective what;
  bool matchable = false;  // has a sequence number
  std::uint32_t name = 0;  // indices into RunModel::names
  std::uint32_t operation = 0;
  std::uint32_t ranks = 0;  // of its communicator; 0 where the trace does not say
};

// Spans in the order of appending: about five bytes each. Ends must not lie before starts.
class PackedSpans {
 public:
  void append(const CategorySpan& span);
  std::size_t size() const { return count_; }
  void unpack(std::vector<CategorySpan>& into) const;  // appends
  void shrink() { bytes_.shrink_to_fit(); }

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t count_ = 0;
  std::int64_t last_start_ = 0;
};

// What a GPU did, by the phase that launched it; the last: unknown.
using GpuSpans = std::array<PackedSpans, phase_count + 1>;

// The same for collectives: about eleven bytes each.
class PackedCollectives {
 public:
  void append(const CollectiveSpan& span);
  std::size_t size() const { return count_; }
  void unpack(std::vector<CollectiveSpan>& into) const;
  void shrink() { bytes_.shrink_to_fit(); }

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t count_ = 0;
  CollectiveSpan last_;
};

// A thread's spans without those that cannot change innermost(): what lies within the innermost span around
// it and is an annotation or of the same category. So of a layer-by-layer recording one span a phase is kept.
class ThreadSpans {
 public:
  void add(const CategorySpan& span);
  // Whether a kept span other than a step is around one that would be added next.
  bool is_inside_phase(const CategorySpan& span) const;
  std::uint64_t seen() const { return seen_; }
  const PackedSpans& kept() const { return kept_; }
  void shrink() { kept_.shrink(); }

 private:
  PackedSpans kept_;
  std::vector<CategorySpan> open_;  // kept spans around the last one, the innermost last
  std::int64_t last_start_ = INT64_MIN;
  std::uint64_t seen_ = 0;
};

}  // namespace farandole

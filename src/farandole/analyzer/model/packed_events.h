// Events in a few bytes each. The run model keeps them in this form until a rank is processed. Plain values.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "farandole/analyzer/model/phases.h"
#include "farandole/timeline/event.h"

namespace farandole {

// The part of one rank in a collective. `start` is its arrival.
struct CollectiveSpan {
  std::int64_t start = 0;
  std::int64_t end = 0;
  Collective what;
  bool matchable = false;  // It has a sequence number.
  std::uint32_t name = 0;  // Name and operation are indices into RunModel::names.
  std::uint32_t operation = 0;
  std::uint32_t ranks = 0;    // Ranks of its communicator; 0 if the trace does not record it.
  bool arrival_known = true;  // False: `start` is when the transfer began.
};

// Spans in the order of their addition, about five bytes each. An end must not be before its start.
class PackedSpans {
 public:
  void append(const CategorySpan& span);
  std::size_t size() const { return count_; }
  void unpack(std::vector<CategorySpan>& into) const;  // Appends to `into`.
  void shrink() { bytes_.shrink_to_fit(); }

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t count_ = 0;
  std::int64_t last_start_ = 0;
};

// A span with its name: a kernel or copy of a GPU, or a range of the host in which work may be launched.
struct NamedSpan {
  static constexpr std::uint32_t no_range = UINT32_MAX;
  enum class Launch : std::uint8_t { unknown, time, correlation };

  std::int64_t start = 0;
  std::int64_t end = 0;
  std::int64_t launch = 0;         // When the host launched it, or the number of the call that did.
  std::uint64_t bytes = 0;         // Of a copy; 0: unknown.
  std::uint32_t name = 0;          // Index into RunModel::names.
  std::uint32_t range = no_range;  // Name of the host's range that launched it.
  Category category = Category::other;
  std::uint8_t phase = phase_count;  // That launched it; phase_count: unknown.
  Launch launch_is = Launch::unknown;
};

// The same for these, about eight bytes each.
class PackedNamedSpans {
 public:
  void append(const NamedSpan& span);
  std::size_t size() const { return count_; }
  void unpack(std::vector<NamedSpan>& into) const;
  void unpack(std::vector<CategorySpan>& into) const;  // Without the rest.
  void shrink() { bytes_.shrink_to_fit(); }

 private:
  template <class Take>
  void each(Take&& take) const;

  std::vector<std::uint8_t> bytes_;
  std::size_t count_ = 0;
  std::int64_t last_start_ = 0;
  std::int64_t last_correlation_ = 0;
};

// The same for collectives, about eleven bytes each.
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

// The spans of a thread without those that cannot change innermost(): annotations, and spans with
// the category of the innermost span around them. Therefore a recording of each layer keeps only
// one span per phase.
class ThreadSpans {
 public:
  void add(const CategorySpan& span, bool keep_all = false);
  // Returns whether a span was left out that may change innermost(), because spans came out of order and the
  // innermost span around it was unknown.
  bool is_uncertain() const { return is_unordered_ && has_left_out_; }
  std::uint64_t seen() const { return seen_; }
  const PackedSpans& kept() const { return kept_; }
  void shrink() { kept_.shrink(); }

 private:
  PackedSpans kept_;
  std::vector<CategorySpan> open_;  // Kept spans around the last one, the innermost last.
  std::int64_t last_start_ = INT64_MIN;
  std::uint64_t seen_ = 0;
  bool is_unordered_ = false;
  bool has_left_out_ = false;
};

}  // namespace farandole

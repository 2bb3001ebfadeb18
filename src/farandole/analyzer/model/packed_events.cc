#include "farandole/analyzer/model/packed_events.h"

#include <algorithm>
#include <utility>

namespace farandole {
namespace {

constexpr std::int64_t longest_ns = std::int64_t{1} << 59;  // 18 years; four bits are left.

// Bits above the phase of a named span.
constexpr unsigned has_launch = 16, has_range = 32, has_bytes = 64, has_correlation = 128;

// Integers in as few bytes as possible (LEB128; signed integers in zigzag).
void append_varint(std::vector<std::uint8_t>& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<std::uint8_t>(value | 0x80));
  to.push_back(static_cast<std::uint8_t>(value));
}
void append_signed(std::vector<std::uint8_t>& to, std::int64_t value) {
  append_varint(to, static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
}

// Reads what the functions above wrote and moves `at` behind it. The caller must know that a
// value is present.
std::uint64_t take_varint(const std::uint8_t*& at) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const std::uint8_t byte = *at++;
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
}
std::int64_t take_signed(const std::uint8_t*& at) {
  const auto value = take_varint(at);
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

}  // namespace

void PackedSpans::append(const CategorySpan& span) {
  const auto length = static_cast<std::uint64_t>(std::min(span.end - span.start, longest_ns));
  append_signed(bytes_, span.start - last_start_);
  append_varint(bytes_, length << 4 | static_cast<std::uint64_t>(span.category));
  last_start_ = span.start;
  ++count_;
}

void PackedSpans::unpack(std::vector<CategorySpan>& into) const {
  const std::uint8_t* at = bytes_.data();
  std::int64_t start = 0;
  into.reserve(into.size() + count_);
  for (std::size_t i = 0; i < count_; ++i) {
    start += take_signed(at);
    const auto rest = take_varint(at);
    into.push_back({start, start + static_cast<std::int64_t>(rest >> 4), static_cast<Category>(rest & 15)});
  }
}

void PackedNamedSpans::append(const NamedSpan& span) {
  static_assert(phase_count < has_launch);
  const bool linked = span.launch_is == NamedSpan::Launch::time;
  const bool to_link = span.launch_is == NamedSpan::Launch::correlation;
  const auto details = (linked ? has_launch : 0U) | (to_link ? has_correlation : 0U) |
                       (span.range != NamedSpan::no_range ? has_range : 0U) |
                       (span.bytes > 0 ? has_bytes : 0U);
  append_signed(bytes_, span.start - last_start_);
  append_varint(bytes_, static_cast<std::uint64_t>(std::min(span.end - span.start, longest_ns)) << 4 |
                            static_cast<std::uint64_t>(span.category));
  bytes_.push_back(static_cast<std::uint8_t>(span.phase | details));
  append_varint(bytes_, span.name);
  if (linked) append_signed(bytes_, span.start - span.launch);
  if (to_link) append_signed(bytes_, span.launch - std::exchange(last_correlation_, span.launch));
  if (span.range != NamedSpan::no_range) append_varint(bytes_, span.range);
  if (span.bytes > 0) append_varint(bytes_, span.bytes);
  last_start_ = span.start;
  ++count_;
}

template <class Take>
void PackedNamedSpans::each(Take&& take) const {
  const std::uint8_t* at = bytes_.data();
  std::int64_t start = 0, correlation = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    NamedSpan span;
    span.start = start += take_signed(at);
    const auto rest = take_varint(at);
    span.end = start + static_cast<std::int64_t>(rest >> 4);
    span.category = static_cast<Category>(rest & 15);
    const unsigned details = *at++;
    span.phase = details & (has_launch - 1);
    span.name = static_cast<std::uint32_t>(take_varint(at));
    if ((details & has_launch) != 0) {
      span.launch_is = NamedSpan::Launch::time;
      span.launch = start - take_signed(at);
    } else if ((details & has_correlation) != 0) {
      span.launch_is = NamedSpan::Launch::correlation;
      span.launch = correlation += take_signed(at);
    }
    if ((details & has_range) != 0) span.range = static_cast<std::uint32_t>(take_varint(at));
    if ((details & has_bytes) != 0) span.bytes = take_varint(at);
    take(span);
  }
}

void PackedNamedSpans::unpack(std::vector<NamedSpan>& into) const {
  into.reserve(into.size() + count_);
  each([&](const NamedSpan& span) { into.push_back(span); });
}

void PackedNamedSpans::unpack(std::vector<CategorySpan>& into) const {
  into.reserve(into.size() + count_);
  each([&](const NamedSpan& span) { into.push_back({span.start, span.end, span.category}); });
}

void PackedCollectives::append(const CollectiveSpan& span) {
  append_signed(bytes_, span.start - last_.start);
  append_varint(bytes_, static_cast<std::uint64_t>(span.end - span.start) << 1 | (span.matchable ? 1 : 0));
  append_signed(bytes_, std::int64_t{span.what.sequence} - last_.what.sequence);
  append_signed(bytes_, std::int64_t{span.what.communicator} - last_.what.communicator);
  append_varint(bytes_, span.what.bytes);
  append_varint(bytes_, std::uint64_t{span.ranks} << 1 | (span.arrival_known ? 1 : 0));
  append_varint(bytes_, span.name);
  append_varint(bytes_, span.operation);
  last_ = span;
  ++count_;
}

void PackedCollectives::unpack(std::vector<CollectiveSpan>& into) const {
  const std::uint8_t* at = bytes_.data();
  CollectiveSpan span;
  into.reserve(into.size() + count_);
  for (std::size_t i = 0; i < count_; ++i) {
    span.start += take_signed(at);
    const auto length = take_varint(at);
    span.end = span.start + static_cast<std::int64_t>(length >> 1);
    span.matchable = (length & 1) != 0;
    span.what.sequence = static_cast<std::uint32_t>(span.what.sequence + take_signed(at));
    span.what.communicator = static_cast<std::uint16_t>(span.what.communicator + take_signed(at));
    span.what.bytes = take_varint(at);
    const auto ranks = take_varint(at);
    span.ranks = static_cast<std::uint32_t>(ranks >> 1);
    span.arrival_known = (ranks & 1) != 0;
    span.name = static_cast<std::uint32_t>(take_varint(at));
    span.operation = static_cast<std::uint32_t>(take_varint(at));
    into.push_back(span);
  }
}

void ThreadSpans::add(const CategorySpan& span, bool keep_all) {
  ++seen_;
  // The spans are out of order, so the enclosing spans are unknown.
  if (span.start < last_start_) {
    open_.clear();
    is_unordered_ = true;
  }
  last_start_ = span.start;
  while (!open_.empty() && open_.back().end <= span.start) open_.pop_back();
  if (!open_.empty() && span.end <= open_.back().end) {
    const bool same = span.category == open_.back().category && span.category != Category::step;
    has_left_out_ |= same && !keep_all;
    if ((same && !keep_all) || span.category == Category::other) return;
  }
  kept_.append(span);
  open_.push_back(span);
}

}  // namespace farandole

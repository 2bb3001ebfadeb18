#include "farandole/timeline/own_span.h"

#include <cstring>
#include <limits>

namespace farandole {
namespace {

// What is not as expected leaves the cursor at nullptr, and so do all steps behind it.
class Cursor {
 public:
  Cursor(const char* at, const char* end) : at_(at), end_(end) {}

  const char* at() const { return at_ != nullptr && at_ <= end_ ? at_ : nullptr; }

  template <std::size_t n>
  bool skip(const char (&text)[n]) {
    static_assert(n - 1 <= own_span_padding);
    if (at_ == nullptr || at_ > end_ || std::memcmp(at_, text, n - 1) != 0) return false;
    at_ += n - 1;
    return true;
  }
  template <std::size_t n>
  void expect(const char (&text)[n]) {
    if (!skip(text)) at_ = nullptr;
  }

  // Up to the quotation mark, which is skipped.
  std::string_view text() {
    if (at_ == nullptr) return {};
    const char* const begin = at_;
    while (at_ < end_ && *at_ != '"') {
      const auto c = static_cast<unsigned char>(*at_++);
      if (c < 0x20 || c >= 0x7F || c == '\\') return at_ = nullptr, std::string_view();
    }
    if (at_ >= end_) return at_ = nullptr, std::string_view();
    return {begin, static_cast<std::size_t>(at_++ - begin)};
  }

  // At most 18 digits, so that nothing overflows; without needless zeros in front, which JSON does not allow.
  std::uint64_t digits() {
    if (at_ == nullptr) return 0;
    const char* const begin = at_;
    std::uint64_t value = 0;
    while (is_digit(*at_) && at_ - begin < 19) value = 10 * value + static_cast<std::uint64_t>(*at_++ - '0');
    const auto count = at_ - begin;
    if (count == 0 || count > 18 || (*begin == '0' && count > 1)) at_ = nullptr;
    return value;
  }

  // Microseconds with three decimals, in ns.
  std::int64_t time() {
    const auto whole = digits();
    if (at_ == nullptr || whole > 2'000'000'000'000'000 || at_[0] != '.' || !is_digit(at_[1]) ||
        !is_digit(at_[2]) || !is_digit(at_[3]) || is_digit(at_[4]))
      return at_ = nullptr, 0;
    const auto decimals = 100 * (at_[1] - '0') + 10 * (at_[2] - '0') + (at_[3] - '0');
    at_ += 4;
    return static_cast<std::int64_t>(whole * 1000) + decimals;
  }

 private:
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  const char* at_;
  const char* const end_;
};

void read_collective(Cursor& cursor, TraceSpan& span) {
  span.operation = cursor.text();
  cursor.expect(",\"communicator\":");
  const auto communicator = cursor.digits();
  cursor.expect(",\"sequence\":");
  const auto sequence = cursor.digits();
  cursor.expect(",\"bytes\":");
  const auto bytes = cursor.digits();
  if (communicator > std::numeric_limits<std::uint16_t>::max() ||
      sequence > std::numeric_limits<std::uint32_t>::max())
    return cursor.expect("too large");
  span.collective = {static_cast<std::uint32_t>(sequence), static_cast<std::uint16_t>(communicator), bytes};
}

// Its bytes, where it has some; the rest is for people.
void read_mpi_call(Cursor& cursor, TraceSpan& span) {
  if (cursor.skip("\"bytes\":")) {
    span.bytes = cursor.digits();
    if (!cursor.skip(",")) return;
  }
  do {
    if (!cursor.skip("\"peer\":") && !cursor.skip("\"root\":") && !cursor.skip("\"tag\":") &&
        !cursor.skip("\"ranks\":") && !cursor.skip("\"requests\":"))
      cursor.expect("\"polls\":");
    cursor.digits();
  } while (cursor.skip(","));
}

}  // namespace

const char* read_own_span(const char* at, const char* end, TraceSpan& span) {
  Cursor cursor(at, end);
  cursor.expect("{\"ph\":\"X\",\"cat\":\"");
  span.category_text = cursor.text();
  span.category = category_of(span.category_text).value_or(Category::other);
  cursor.expect(",\"name\":\"");
  span.name = cursor.text();
  cursor.expect(",\"pid\":");
  span.pid = static_cast<std::int64_t>(cursor.digits());
  cursor.expect(",\"tid\":");
  span.tid = static_cast<std::int64_t>(cursor.digits());
  cursor.expect(",\"ts\":");
  span.start_ns = cursor.time();
  cursor.expect(",\"dur\":");
  span.duration_ns = cursor.time();
  span.step.reset();
  span.collective.reset();
  span.phase.reset();
  span.operation = {};
  span.bytes = 0;
  if (cursor.skip(",\"args\":{")) {
    bool more = true;
    if (cursor.skip("\"step\":")) {
      span.step = static_cast<std::int64_t>(cursor.digits());
      more = cursor.skip(",");
    }
    if (more && cursor.skip("\"phase\":\"")) {
      span.phase = category_of(cursor.text());
      more = cursor.skip(",");
    }
    if (more && cursor.skip("\"operation\":\"")) {
      read_collective(cursor, span);
    } else if (more) {
      read_mpi_call(cursor, span);
    }
    cursor.expect("}");
  }
  cursor.expect("}");
  return cursor.at();
}

}  // namespace farandole

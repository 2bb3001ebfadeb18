// Reads an event's text whose exact form is known. If the text differs from that form, or contains escapes or
// non-ASCII characters, the cursor becomes nullptr and all further steps do nothing.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace farandole {

class TraceCursor {
 public:
  // This number of bytes after `end` must be readable.
  static constexpr std::size_t padding = 32;

  TraceCursor(const char* at, const char* end) : at_(at), end_(end) {}

  const char* at() const { return at_ != nullptr && at_ <= end_ ? at_ : nullptr; }

  template <std::size_t n>
  bool skip(const char (&text)[n]) {
    static_assert(n - 1 <= padding);
    if (at_ == nullptr || at_ > end_ || std::memcmp(at_, text, n - 1) != 0) return false;
    at_ += n - 1;
    return true;
  }
  template <std::size_t n>
  void expect(const char (&text)[n]) {
    if (!skip(text)) at_ = nullptr;
  }

  void fail() { at_ = nullptr; }

  // Reads up to the quotation mark, and skips the mark.
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

  // Reads up to 18 digits, so that nothing overflows. Leading zeros are rejected, because JSON
  // does not allow them.
  std::uint64_t digits() {
    if (at_ == nullptr || at_ > end_) return at_ = nullptr, 0;
    const char* const begin = at_;
    std::uint64_t value = 0;
    while (is_digit(*at_) && at_ - begin < 19) value = 10 * value + static_cast<std::uint64_t>(*at_++ - '0');
    const auto count = at_ - begin;
    if (count == 0 || count > 18 || (*begin == '0' && count > 1)) at_ = nullptr;
    return value;
  }

  // Reads microseconds with three decimals.
  // Units: nanoseconds.
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

}  // namespace farandole

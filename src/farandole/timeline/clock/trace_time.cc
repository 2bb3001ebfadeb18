#include "farandole/timeline/clock/trace_time.h"

#include <cmath>

#include "farandole/base/parse_number.h"

namespace farandole {

std::optional<std::int64_t> nanoseconds_of(std::string_view microseconds) {
  while (!microseconds.empty() &&
         std::string_view(" \n\r\t").find(microseconds.back()) != std::string_view::npos)
    microseconds.remove_suffix(1);
  const bool negative = microseconds.starts_with('-');
  const char* at = microseconds.data() + (negative ? 1 : 0);
  const char* const end = microseconds.data() + microseconds.size();
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (at == end || !is_digit(*at)) return std::nullopt;
  std::int64_t ns = 0;
  bool overflow = false;
  const auto append = [&](char digit) {
    overflow |= __builtin_mul_overflow(ns, std::int64_t{10}, &ns);
    overflow |= __builtin_add_overflow(ns, std::int64_t{digit - '0'}, &ns);
  };
  for (; at != end && is_digit(*at); ++at) append(*at);
  int decimals = 0;
  if (at != end && *at == '.') {
    if (++at == end || !is_digit(*at)) return std::nullopt;
    for (; at != end && is_digit(*at); ++at, ++decimals) {
      if (decimals < 3)
        append(*at);
      else if (decimals == 3 && *at >= '5')
        overflow |= __builtin_add_overflow(ns, std::int64_t{1}, &ns);
    }
  }
  if (at != end) {  // an exponent is so rare that the rounding of a double is acceptable
    const auto value = parse_number<double>(microseconds);
    if (!value || !(std::abs(*value) < 9.2e15)) return std::nullopt;
    return std::llround(*value * 1e3);
  }
  for (; decimals < 3; ++decimals) append('0');
  if (overflow) return std::nullopt;
  return negative ? -ns : ns;
}

}  // namespace farandole

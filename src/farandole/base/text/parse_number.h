// Numbers and durations in texts.
// Thread safety: any thread may call this at any time.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace farandole {

// Returns std::nullopt if `text` is not entirely a number of type T, or if the number does not fit into T. A
// leading plus sign or space is not accepted. The locale has no effect.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Units: seconds. "90" or "90s", "1.5min", "2h". std::nullopt if `text` is not a duration, is negative, or is
// longer than 10^9 s.
std::optional<double> parse_duration(std::string_view text);

}  // namespace farandole

// Parses a text that consists of one number.
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

}  // namespace farandole

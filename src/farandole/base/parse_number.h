// Numbers that are the whole of a text. Any thread.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace farandole {

// Nothing where `text` is not a number of type T from its first to its last character, or does not fit; the
// locale plays no part. A leading + or space is no number.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace farandole

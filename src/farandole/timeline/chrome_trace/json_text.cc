#include "farandole/timeline/chrome_trace/json_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

namespace farandole {
namespace {

constexpr std::array<bool, 256> plain = [] {
  std::array<bool, 256> table{};
  for (int c = 0x20; c < 0x7f; ++c) table[static_cast<std::size_t>(c)] = c != '"' && c != '\\';
  return table;
}();

bool is_plain(char c) {
  return plain[static_cast<unsigned char>(c)];
}

// The length of the UTF-8 character at the start of `text`; 0 if it is invalid (overlong,
// surrogate, above U+10FFFF, truncated).
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0u; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool allowed = first == 0xe0 ? byte(1) >= 0xa0 : first == 0xed ? byte(1) <= 0x9f : true;
    return allowed && follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool allowed = first == 0xf0 ? byte(1) >= 0x90 : first == 0xf4 ? byte(1) <= 0x8f : true;
    return allowed && follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

void append(fmt::memory_buffer& to, std::string_view text) {
  to.append(text.data(), text.data() + text.size());
}

}  // namespace

void append_json_text(fmt::memory_buffer& to, std::string_view text) {
  to.push_back('"');
  while (!text.empty()) {
    const auto count =
        static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_plain) - text.begin());
    append(to, text.substr(0, count));
    text.remove_prefix(count);
    if (text.empty()) break;
    const std::size_t length = character_length(text);
    const auto c = static_cast<unsigned char>(text.front());
    if (length > 1)
      append(to, text.substr(0, length));
    else if (length == 0)
      append(to, "\xef\xbf\xbd");
    else if (c == '"' || c == '\\')
      fmt::format_to(std::back_inserter(to), "\\{}", static_cast<char>(c));
    else
      fmt::format_to(std::back_inserter(to), "\\u{:04x}", c);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  to.push_back('"');
}

}  // namespace farandole

#include "farandole/base/text/phrases.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace farandole {
namespace {

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

// Returns 0 also for a character that could control a terminal: below space, DEL, and U+0080 to U+009F.
std::size_t printable_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto length = character_bytes(text);
  const bool controls =
      byte(0) < 0x20 || byte(0) == 0x7F || (length == 2 && byte(0) == 0xC2 && byte(1) < 0xA0);
  return controls ? 0 : length;
}

}  // namespace

std::string describe_seconds(std::int64_t ns) {
  const double seconds = static_cast<double>(ns) * 1e-9;
  return seconds < 9.95 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string describe_clock(double seconds) {
  const auto total = static_cast<std::int64_t>(std::max(0.0, seconds) + 0.5);
  if (total >= 3600) return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

std::string describe_bytes(std::int64_t bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return unit == 0 || value >= 99.95 ? fmt::format("{:.0f} {}", value, units[unit])
                                     : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string describe_numbers(std::span<const int> numbers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    parts.push_back(last == i       ? fmt::format("{}", numbers[i])
                    : last == i + 1 ? fmt::format("{}, {}", numbers[i], numbers[last])
                                    : fmt::format("{}-{}", numbers[i], numbers[last]));
    i = last + 1;
  }
  return describe_list(parts, 20);
}

std::string describe_ranks(std::span<const int> ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", describe_numbers(ranks));
}

std::string describe_list(std::span<const std::string> texts, std::size_t most) {
  const auto shown = texts.first(std::min(most, texts.size()));
  return texts.size() <= most ? fmt::format("{}", fmt::join(shown, ", "))
                              : fmt::format("{} and {} more", fmt::join(shown, ", "), texts.size() - most);
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const auto comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::size_t character_bytes(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  const std::size_t length = byte < 0x80    ? 1
                             : byte < 0xC2  ? 0
                             : byte < 0xE0  ? 2
                             : byte < 0xF0  ? 3
                             : byte <= 0xF4 ? 4
                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  // Longer forms than needed, surrogates, and numbers above U+10FFFF (RFC 3629).
  const auto next = length > 2 ? static_cast<unsigned char>(text[1]) : 0;
  if ((byte == 0xE0 && next < 0xA0) || (byte == 0xED && next >= 0xA0) || (byte == 0xF0 && next < 0x90) ||
      (byte == 0xF4 && next >= 0x90))
    return 0;
  return std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(length),
                     continues_character)
             ? length
             : 0;
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto bytes = printable_bytes(text);
    if (bytes > 0)
      result += text.substr(0, bytes);
    else if (!continues_character(text[0]))
      result += '?';  // Continuation bytes are dropped, because they have no width.
    text.remove_prefix(std::max<std::size_t>(1, bytes));
  }
  return result;
}

std::string printable_lines(std::string_view text) {
  std::string lines;
  for (;;) {
    const auto end = text.find('\n');
    lines += printable(text.substr(0, end));
    if (end == std::string_view::npos) return lines;
    lines += '\n';
    text.remove_prefix(end + 1);
  }
}

}  // namespace farandole

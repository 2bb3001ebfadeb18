#include "farandole/base/phrases.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

namespace farandole {

std::string describe_seconds(std::int64_t ns) {
  const double seconds = static_cast<double>(ns) * 1e-9;
  return seconds < 9.95 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string describe_bytes(std::int64_t bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return unit == 0 || value >= 99.95 ? fmt::format("{:.0f} {}", value, units[unit])
                                     : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string describe_ranks(std::span<const int> ranks) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    parts.push_back(last == i       ? fmt::format("{}", ranks[i])
                    : last == i + 1 ? fmt::format("{}, {}", ranks[i], ranks[last])
                                    : fmt::format("{}-{}", ranks[i], ranks[last]));
    i = last + 1;
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", describe_list(parts, 20));
}

std::string describe_list(std::span<const std::string> texts, std::size_t most) {
  const auto shown = texts.first(std::min(most, texts.size()));
  return texts.size() <= most ? fmt::format("{}", fmt::join(shown, ", "))
                              : fmt::format("{} and {} more", fmt::join(shown, ", "), texts.size() - most);
}

}  // namespace farandole

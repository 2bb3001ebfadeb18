#include "farandole/base/text/parse_number.h"

#include <array>
#include <utility>

namespace farandole {

std::optional<double> parse_duration(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 3> units = {{{"min", 60}, {"h", 3600}, {"s", 1}}};
  double seconds = 1;
  for (const auto& [unit, length] : units) {
    if (!text.ends_with(unit)) continue;
    text.remove_suffix(unit.size());
    seconds = length;
    break;
  }
  const auto number = parse_number<double>(text);
  constexpr double longest = 1e9;
  if (!number || !(*number >= 0 && *number * seconds <= longest)) return std::nullopt;
  return *number * seconds;
}

}  // namespace farandole

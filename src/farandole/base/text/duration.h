// Durations as users write them.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string_view>

namespace farandole {

// Units: seconds. "90" or "90s", "1.5min", "2h". std::nullopt if `text` is not a duration, is negative, or is
// longer than 10^9 s.
std::optional<double> parse_duration(std::string_view text);

}  // namespace farandole

// Times in the form in which Chrome traces write them.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace farandole {

// Converts "1234.567" microseconds to 1234567 ns exactly; further decimals are rounded to nearest.
// std::nullopt if the text is not a JSON number or does not fit.
std::optional<std::int64_t> nanoseconds_of(std::string_view microseconds);

}  // namespace farandole

// Times as Chrome traces write them. A plain function.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace farandole {

// "1234.567" microseconds as 1234567 ns: exact, further decimals rounded to nearest; nullopt where that is no
// number of JSON or does not fit.
std::optional<std::int64_t> nanoseconds_of(std::string_view microseconds);

}  // namespace farandole

// How a collective combines the values of the ranks.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <string_view>

namespace farandole {

// Average: the sum divided by the number of ranks; of floating-point types only.
// A NaN of any rank gives a NaN, also for min and max.
enum class ReduceOp : std::uint8_t { sum, average, min, max, product };
std::string_view name_of(ReduceOp op);

}  // namespace farandole

// Selects the numbers with the largest magnitude.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace farandole {

// Ascending indices of the k numbers with the largest magnitude, or all if there are fewer. For equal
// magnitudes, the first ones are selected. Magnitudes are compared as float32, and NaN counts as the largest.
// The time is linear in values.size(), which must be below 2^32.
template <class T>
void select_largest(std::span<const T> values, std::size_t k, std::vector<std::uint32_t>& indices);

extern template void select_largest(std::span<const float>, std::size_t, std::vector<std::uint32_t>&);
extern template void select_largest(std::span<const double>, std::size_t, std::vector<std::uint32_t>&);

}  // namespace farandole

// Which numbers have the largest magnitude. Usable from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace farandole {

// Indices, ascending, of the k numbers of largest magnitude (all where there are fewer); of equal ones the
// first. Compared as float32; NaN is larger than everything. Takes time linear in values.size(), which is
// below 2^32.
template <class T>
void select_largest(std::span<const T> values, std::size_t k, std::vector<std::uint32_t>& indices);

extern template void select_largest(std::span<const float>, std::size_t, std::vector<std::uint32_t>&);
extern template void select_largest(std::span<const double>, std::size_t, std::vector<std::uint32_t>&);

}  // namespace farandole

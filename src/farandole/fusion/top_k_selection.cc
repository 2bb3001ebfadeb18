#include "farandole/fusion/top_k_selection.h"

#include <bit>

namespace farandole {
namespace {

constexpr int low_bits = 15;

// The bits of a float's magnitude have the same order as the magnitudes.
template <class T>
std::uint32_t key(T value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value)) & 0x7fffffffu;
}

// The bin that contains the k-th largest number. k becomes its position within the bin.
std::uint32_t bin_from_the_top(const std::vector<std::uint32_t>& histogram, std::size_t& k) {
  auto bin = static_cast<std::uint32_t>(histogram.size() - 1);
  for (; k > histogram[bin]; --bin) k -= histogram[bin];
  return bin;
}

}  // namespace

// A radix selection with two digits: first the 16 upper bits, then the 15 lower bits of the numbers with the
// same upper bits as the k-th.
template <class T>
void select_largest(std::span<const T> values, std::size_t k, std::vector<std::uint32_t>& indices) {
  indices.clear();
  if (k > values.size()) k = values.size();
  if (k == 0) return;
  std::vector<std::uint32_t> histogram(std::size_t{1} << (31 - low_bits));
  for (const T value : values) ++histogram[key(value) >> low_bits];
  std::size_t equals = k;
  const std::uint32_t high = bin_from_the_top(histogram, equals);
  histogram.assign(std::size_t{1} << low_bits, 0);
  for (const T value : values)
    if (key(value) >> low_bits == high) ++histogram[key(value) & ((1u << low_bits) - 1)];
  const std::uint32_t last = high << low_bits | bin_from_the_top(histogram, equals);

  indices.reserve(k);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t own = key(values[i]);
    if (own < last || (own == last && equals == 0)) continue;
    if (own == last) --equals;
    indices.push_back(static_cast<std::uint32_t>(i));
  }
}

template void select_largest(std::span<const float>, std::size_t, std::vector<std::uint32_t>&);
template void select_largest(std::span<const double>, std::size_t, std::vector<std::uint32_t>&);

}  // namespace farandole

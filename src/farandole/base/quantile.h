// Quantiles of samples.
// Thread safety: any thread may call this at any time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace farandole {

// Interpolates linearly between the order statistics, as NumPy does by default. `values` must not be empty.
inline double quantile(std::vector<double> values, double fraction) {
  const double position = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(values.begin(), nth, values.end());
  const double low = *nth;
  if (below + 1 == values.size()) return low;
  const double high = *std::min_element(nth + 1, values.end());
  return low + (position - static_cast<double>(below)) * (high - low);
}

}  // namespace farandole

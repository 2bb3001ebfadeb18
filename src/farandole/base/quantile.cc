#include "farandole/base/quantile.h"

#include <algorithm>
#include <cstddef>

namespace farandole {

double quantile(std::vector<double> values, double fraction) {
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

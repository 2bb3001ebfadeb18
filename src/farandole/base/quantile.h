// Quantiles of samples.
// Thread safety: any thread may call this at any time.
#pragma once

#include <vector>

namespace farandole {

// Interpolates linearly between the order statistics, as NumPy does by default. `values` must not be empty.
double quantile(std::vector<double> values, double fraction);

}  // namespace farandole

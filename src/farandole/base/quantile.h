// Quantiles of samples. Any thread.
#pragma once

#include <vector>

namespace farandole {

// Linear interpolation between the order statistics, as NumPy's default; `values` must not be empty.
double quantile(std::vector<double> values, double fraction);

}  // namespace farandole

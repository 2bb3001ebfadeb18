// Repeated measurements of one quantity. Plain values.
#pragma once

#include <vector>

#include "farandole/base/quantile.h"

namespace farandole {

struct Sample {
  std::vector<double> us;  // Microseconds per call; one value per repetition.

  bool empty() const { return us.empty(); }
  double median() const { return quantile(0.5); }
  double quantile(double fraction) const { return farandole::quantile(us, fraction); }
};

}  // namespace farandole

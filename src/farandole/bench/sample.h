// Repeated measurements of one thing. Plain values.
#pragma once

#include <vector>

#include "farandole/base/quantile.h"

namespace farandole {

struct Sample {
  std::vector<double> us;  // microseconds a call, one of each repetition

  bool empty() const { return us.empty(); }
  double median() const { return quantile(0.5); }
  double quantile(double fraction) const { return farandole::quantile(us, fraction); }
};

}  // namespace farandole

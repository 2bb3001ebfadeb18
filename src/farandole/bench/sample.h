// Repeated measurements of one quantity. Plain values.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <fmt/format.h>
#include <string>
#include <vector>

#include "farandole/base/quantile.h"

namespace farandole {

struct Sample {
  std::vector<double> us;  // Microseconds per call; one value per repetition.

  bool empty() const { return us.empty(); }
  double median() const { return quantile(0.5); }
  double quantile(double fraction) const { return farandole::quantile(us, fraction); }
};

// Median and quartiles in milliseconds: "1.52 (1.49–1.60)".
inline std::string milliseconds_with_spread(const Sample& sample) {
  return fmt::format("{:.2f} ({:.2f}–{:.2f})", sample.median() * 1e-3, sample.quantile(0.25) * 1e-3,
                     sample.quantile(0.75) * 1e-3);
}

}  // namespace farandole

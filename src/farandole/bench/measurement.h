// What all benchmarks have in common: repeated measurements of one quantity, and facts about the machine.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <string>
#include <vector>

#include "farandole/base/quantile.h"
#include "farandole/base/text/json.h"

namespace farandole {

struct Sample {
  std::vector<double> us;  // Microseconds per call; one value per repetition.

  bool empty() const { return us.empty(); }
  double median() const { return quantile(0.5); }
  double quantile(double fraction) const { return farandole::quantile(us, fraction); }
};

// Median and quartiles in milliseconds: "1.52 (1.49–1.60)".
std::string milliseconds_with_spread(const Sample& sample);

// {"host":…,"cpu":…,"cores":…,"memory_gib":…,"kernel":…}. Unknown values are left out.
Json machine_facts();

}  // namespace farandole

// Which buckets a run ended with. Plain function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

struct LastBuckets {
  std::vector<std::uint64_t> bytes;  // by number
  std::size_t first_step = 0;        // of the window's steps, from which on they were these
};

// Trials of bucket sizes come before what a run ends with: the buckets of the last step that has some, from
// behind the last step on that has others. `bucket_of_name`: of each of the run's names, where it is one's.
LastBuckets last_buckets(const RunMetrics& metrics,
                         const std::vector<std::optional<std::size_t>>& bucket_of_name);

}  // namespace farandole

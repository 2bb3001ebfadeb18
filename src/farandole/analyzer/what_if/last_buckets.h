// Finds the buckets with which a run ended. A pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"

namespace farandole {

struct LastBuckets {
  std::vector<std::uint64_t> bytes;  // Indexed by bucket number.
  std::size_t first_step = 0;        // First step of the window from which on these buckets were used.
};

// A run may first try bucket sizes. This returns the buckets of the last step that has buckets, and the first
// step from which on they did not change. `bucket_of_name` gives the bucket number of each of the run's
// names, if it names a bucket.
LastBuckets last_buckets(const RunMetrics& metrics,
                         const std::vector<std::optional<std::size_t>>& bucket_of_name);

}  // namespace farandole

// The buckets that a run reduced, and when their gradients were ready.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/what_if/step_graph.h"

namespace farandole {

// Returns for each of the run's names the number of the bucket that it names.
std::vector<std::optional<std::size_t>> bucket_numbers(const std::vector<std::string>& names);

struct LastBuckets {
  std::vector<std::uint64_t> bytes;  // Indexed by bucket number.
  std::size_t first_step = 0;        // First step of the window from which on these buckets were used.
};

// A run may first try bucket sizes. This returns the buckets of the last step that has buckets, and the first
// step from which on they did not change. `bucket_of_name` gives the bucket number of each of the run's
// names, if it names a bucket.
LastBuckets last_buckets(const RunMetrics& metrics,
                         const std::vector<std::optional<std::size_t>>& bucket_of_name);

// Collects the times at which gradients were ready, over ranks and steps.
class GradientTimes {
 public:
  explicit GradientTimes(std::size_t ranks) : ranks_(ranks) {}

  // `at` is a fraction of the work of its backward. `name` is an index into the run's names.
  void add(std::uint32_t name, std::uint64_t bytes, std::size_t rank, double at);
  // Adds the gradients to `graph`, in the order of the first rank, and the times at which their buckets were
  // full. Adds nothing if a rank does not record every gradient.
  void settle(StepGraph& graph) const;

 private:
  struct One {
    std::uint64_t bytes = 0;
    std::vector<std::vector<double>> at;  // Indexed by rank; all recorded steps.
  };
  std::size_t ranks_;
  std::map<std::uint32_t, One> by_name_;
};

}  // namespace farandole

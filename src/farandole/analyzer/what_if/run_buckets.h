// The buckets that a run reduced: when their gradients were ready, and what their reductions
// and updates cost.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/metrics/collectives.h"
#include "farandole/analyzer/metrics/interval.h"
#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/model/packed_events.h"
#include "farandole/analyzer/what_if/cost_model.h"
#include "farandole/analyzer/what_if/shared_cores.h"
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

// One rank's training thread, unpacked.
struct RankThread {
  std::size_t index;  // of the rank in the run
  std::vector<CategorySpan> spans;
  std::vector<CollectiveSpan> gradients;
  const std::vector<Interval>& waits;
  const WorkClock& clock;
  std::vector<Interval> updates;  // by the optimizer
};

class ReductionCosts {
 public:
  // The rank's part of a bucket's reduction; `caller_driven`: the training thread runs it.
  void add_part(const RankThread& rank, const CollectivePart& part, const CollectiveMatch& match,
                bool caller_driven);
  // The updates that begin in `tail`, which is between a step's backward and its end. `last_end`: of the
  // step's reductions. `buckets`: their bytes.
  void add_updates(const RankThread& rank, Interval tail, std::int64_t last_end,
                   const std::vector<std::uint64_t>& buckets);
  void settle(StepGraph& graph) const;

 private:
  std::vector<CostSample> parts_, ends_, updates_;
  std::size_t steps_with_updates_ = 0, steps_with_updates_between_ = 0;
};

}  // namespace farandole

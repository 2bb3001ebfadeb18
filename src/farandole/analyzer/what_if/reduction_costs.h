// What a rank's part of a bucket's reduction, and the bucket's update, cost in a run.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "farandole/analyzer/metrics/collectives.h"
#include "farandole/analyzer/metrics/interval.h"
#include "farandole/analyzer/model/packed_events.h"
#include "farandole/analyzer/what_if/cost_model.h"
#include "farandole/analyzer/what_if/step_graph.h"
#include "farandole/analyzer/what_if/work_clock.h"

namespace farandole {

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
  // The updates that begin in `tail`, which is between a step's backward and its end. `last_end`: of the step's
  // reductions. `buckets`: their bytes.
  void add_updates(const RankThread& rank, Interval tail, std::int64_t last_end,
                   const std::vector<std::uint64_t>& buckets);
  void settle(StepGraph& graph) const;

 private:
  std::vector<CostSample> parts_, ends_, updates_;
  std::size_t steps_with_updates_ = 0, steps_with_updates_between_ = 0;
};

}  // namespace farandole

// The steps of a run as the work of each rank's training thread between waits, its buckets, and what their
// reductions and updates cost. Predictions change and replay these steps. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/what_if/cost_model.h"

namespace farandole {

// A collective that the training thread runs.
struct OwnCollective {
  enum class Part : std::uint8_t { before, backward, tail, after };
  Part part = Part::before;  // Part of the RankStep that has the collective.
  double at = 0;             // Work since the beginning of that part.
  double ns = 0;             // From the last arrival to the end.
  bool of_checkpoint = false;
};

// Work of a rank's training thread from the beginning of one step to the beginning of the next, in ns. Waits
// and the thread's parts of reductions are not included.
struct RankStep {
  double before = 0;    // Until the last backward pass begins.
  double backward = 0;  // Duration of the last backward pass.
  double tail = 0;      // From there to the end of the step: updates.
  double after = 0;     // From there to the beginning of the next step, without checkpoints.
  double checkpoint = 0;
  std::vector<OwnCollective> collectives;  // In their order.
};

struct StepGraph {
  std::string unknown;        // Why there is no graph; then the other members are empty.
  bool caller_driven = true;  // True: the training thread reduces; false: a thread beside it.
  std::vector<std::size_t> node_of_rank;
  double cores = 0;                    // Per node; 0: unknown.
  double threads = 1;                  // Threads that the training thread's work uses.
  std::vector<std::uint64_t> buckets;  // Bytes, in the order of reduction.
  std::size_t first_step = 0;          // First step of the window from which on these buckets were used.
  // Gradients in the order in which they become ready; empty if no step records them.
  std::vector<std::uint64_t> gradients;  // Bytes.
  // Indexed by rank; fractions of the work of the last backward pass.
  std::vector<std::vector<double>> gradient_at, bucket_at;
  std::vector<std::vector<RankStep>> steps;  // Indexed by rank.
  bool updates_between = true;  // Buckets are updated while later buckets are still being reduced.
  CostModel part;               // A rank's part of the reduction of a bucket.
  CostModel update;             // The update of a bucket.
  double wake_ns = 0;           // Delay between the end of a wait and the rank's next work.
  std::vector<std::string> notes;
};

// Unpacks one rank at a time. Of many steps, some are used, evenly distributed.
StepGraph graph_of(const RunModel& run, const RunMetrics& metrics);

}  // namespace farandole

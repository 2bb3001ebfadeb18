// A run's steps as what each rank's training thread did between what it waited for: what a what-if changes
// and replays. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/what_if/cost_model.h"

namespace farandole {

// A collective that the training thread itself runs.
struct OwnCollective {
  enum class Part : std::uint8_t { before, backward, tail, after };
  Part part = Part::before;  // of its RankStep, in which it comes
  double at = 0;             // work since that part's beginning
  double ns = 0;             // from the last arrival to the end
  std::uint64_t bytes = 0;
  bool of_checkpoint = false;
};

// Work of one rank's training thread from one step's beginning to the next one's, in ns; without what it
// waits for, and without its parts of reductions.
struct RankStep {
  double before = 0;    // to the beginning of its last backward
  double backward = 0;  // of that
  double tail = 0;      // from there to the step's end: updates
  double after = 0;     // from there to the next step's beginning, without:
  double checkpoint = 0;
  std::vector<OwnCollective> collectives;  // in their order

  double total() const { return before + backward + tail + after + checkpoint; }
};

struct StepGraph {
  std::string unknown;        // why there is none; then the rest is empty
  bool caller_driven = true;  // the training threads reduce, else threads beside them
  std::vector<std::size_t> node_of_rank;
  double cores = 0;                    // of a node; 0: unknown, or enough
  double threads = 1;                  // of a training thread's work
  std::vector<std::uint64_t> buckets;  // bytes, in the order of their reduction
  std::size_t first_step = 0;          // of the window's steps, from which on these were the buckets
  // What is known of single gradients, in the order in which they come; empty where no step notes them.
  std::vector<std::uint64_t> gradients;  // bytes
  // By rank, as fractions of the last backward's work.
  std::vector<std::vector<double>> gradient_at, bucket_at;
  std::vector<std::vector<RankStep>> steps;  // by rank
  bool updates_between = true;  // buckets are updated while those behind them are still being reduced
  CostModel part;               // a rank's part of a bucket's reduction
  CostModel update;             // a bucket's update
  double wake_ns = 0;           // from what a rank waits for until it goes on, where cores are not shared
  std::vector<std::string> notes;
};

// Of how many steps, taken evenly from all: as many as memory and replays stay small with, or those that tell
// in a moment what a change to all steps is about. What only some steps have may be in more or fewer of these
// than its due.
enum class ReplayedSteps : std::uint8_t { many, enough };

// Unpacks rank after rank.
StepGraph graph_of(const RunModel& run, const RunMetrics& metrics, ReplayedSteps steps);

}  // namespace farandole

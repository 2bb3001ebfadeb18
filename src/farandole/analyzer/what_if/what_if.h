// What a run would have been under other conditions, by replaying its own steps. Plain values and functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/findings/stragglers.h"
#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/statistics/statistics.h"
#include "farandole/analyzer/what_if/scenario.h"
#include "farandole/analyzer/what_if/step_graph.h"

namespace farandole {

struct Prediction {
  Scenario scenario;
  std::string unknown;      // why nothing is said; then the rest is empty
  double step_ms = 0;       // median, from one step's beginning to the next one's
  double change = 0;        // of that, relative to the run as it was
  Range band{};             // of step_ms
  double mean_step_ms = 0;  // so also of checkpoints and what else is not in every step
  double mean_change = 0;
  Figure throughput;  // samples/s
  std::vector<std::string> notes;
};

// The run's own steps and what they say of costs; kept after the run's events are gone.
struct Replay {
  StepGraph graph;
  std::vector<std::size_t> late_ranks;  // chronic and one-off stragglers
  std::size_t size = 0;                 // ranks of the run; the graph may have a sample of them
  double bucket_mb = 0;                 // 0: not known
  std::string compression;              // of the run; "" not known
  double global_batch = 0;              // 0: not known
  double measured_ms = 0;               // median of a step
  double measured_mean_ms = 0;
  Range measured_ci95{};
  // Of measured_ms, of the replay of the run as it was: what the model of the run gets wrong. Predictions are
  // corrected by it.
  double error = 0;
  double mean_error = 0;

  bool known() const { return graph.unknown.empty(); }
  bool is_sample() const { return size > graph.steps.size(); }
};

Replay replay_of(const RunModel& run, const RunMetrics& metrics, const std::vector<Straggler>& stragglers,
                 ReplayedSteps steps);

Prediction predict(const Replay& replay, const Scenario& scenario);

// Its `mean_change` alone, at a third of its cost; none where predict() says why nothing is said.
std::optional<double> mean_change(const Replay& replay, const Scenario& scenario);

// About its `step_ms`, from few steps and uncorrected, for comparing scenarios; none where predict() says why
// nothing is said.
std::optional<double> quick_step_ms(const Replay& replay, const Scenario& scenario);

}  // namespace farandole

// Predicts a run under other conditions by replaying its steps. Plain values and pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/findings/stragglers.h"
#include "farandole/analyzer/findings/verdict.h"
#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/statistics/statistics.h"
#include "farandole/analyzer/what_if/scenario.h"
#include "farandole/analyzer/what_if/step_graph.h"

namespace farandole {

struct Prediction {
  Scenario scenario;
  std::string unknown;      // Why there is no prediction; then the other members are empty.
  double step_ms = 0;       // Median time from the beginning of one step to that of the next.
  double change = 0;        // Relative change of step_ms compared with the unchanged run.
  Range band{};             // Band of step_ms.
  double mean_step_ms = 0;  // Includes checkpoints and other work that is not in every step.
  double mean_change = 0;
  Figure throughput;               // Samples per second.
  std::vector<std::string> notes;  // Assumptions of the prediction.
};

// The steps of a run and the fitted costs. They remain valid after the run's events are freed.
struct Replay {
  StepGraph graph;
  std::vector<std::size_t> late_ranks;  // Chronic and one-off stragglers.
  std::size_t size = 0;                 // Ranks of the run; the graph may have a sample of them.
  double bucket_mb = 0;                 // 0: unknown.
  std::string compression;              // Compression of the run; "": unknown.
  ProgramKind kind = ProgramKind::program;
  double global_batch = 0;  // 0: unknown.
  double measured_ms = 0;   // Median step.
  double measured_mean_ms = 0;
  Range measured_ci95{};
  // Error of the replay of the unchanged run, relative to measured_ms. Predictions are
  // corrected by this error.
  double error = 0;
  double mean_error = 0;

  bool known() const { return graph.unknown.empty(); }
  bool is_sample() const { return size > graph.steps.size(); }
};

Replay replay_of(const RunModel& run, const RunMetrics& metrics, const std::vector<Straggler>& stragglers);

Prediction predict(const Replay& replay, const Scenario& scenario);

// Returns only the `mean_change` at a third of the cost; nullopt if predict() gives a reason
// instead of a prediction.
std::optional<double> mean_change(const Replay& replay, const Scenario& scenario);

// Returns an approximate `step_ms` from few steps and without correction, for comparisons of scenarios;
// nullopt if predict() gives a reason instead of a prediction.
std::optional<double> quick_step_ms(const Replay& replay, const Scenario& scenario);

// Returns whether a replay can improve the findings within a short time.
bool can_replay(const RunMetrics& metrics, const std::vector<Finding>& findings);

// Adds to the findings what a replay says about their gains. The best bucket size is found by trying several.
void add_replayed_gains(const Replay& replay, std::vector<Finding>& findings);

}  // namespace farandole

// Weak and strong scaling efficiency of runs of different sizes, and a forecast. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

// At x times the base's ranks, efficiency is (Gunther, "Guerrilla Capacity Planning", for the universal law):
//   amdahl      1 / (1 + s·(x − 1))                          s: serial share of the work
//   gustafson   1 − s·(1 − 1/x)                              s: share of the time that does not scale
//   usl         1 / (1 + contention·(x − 1) + coherency·x·(x − 1))
struct ScalingLaw {
  double amdahl = 0;
  double gustafson = 0;
  double contention = 0;
  double coherency = 0;
};

struct SizedEfficiency {
  double x = 1;  // ranks against the base's
  double efficiency = 1;
};

// Least squares over the points with x > 1, of which there must be at least one. No parameter is negative.
// With fewer than two points, the universal law has no coherency.
ScalingLaw fit_scaling(const std::vector<SizedEfficiency>& points);

enum class LawKind { amdahl, gustafson, usl };
double efficiency_by(LawKind kind, const ScalingLaw& law, double x);
std::string name_of(LawKind kind);

// Returns the largest x, up to `most`, at which one more rank adds at least half of the work
// of the first rank.
double worth_until(LawKind kind, const ScalingLaw& law, double most);

// The data of a run that scaling needs. Repeated runs of one size are separate entries.
struct SizedRun {
  std::string path;
  int ranks = 0;
  Figure global_batch;             // Samples per step of all ranks.
  std::vector<double> periods_ms;  // One value per step; the sum is the window.
  Figure compute_ms;               // Mean over ranks and steps.
};

struct ScalingPoint {
  int ranks = 0;
  double step_ms = 0;     // Mean period; for repeated runs, the mean of their means.
  double efficiency = 0;  // Relative to the smallest size, which has 1.
  // Interval from a bootstrap over runs and blocks of steps. Differences between repeated runs are widened by
  // Student's t, because there are few runs.
  Range ci95;
  int runs = 1;  // Number of repeated runs.
  // Compute time of a sample at the smallest size divided by that at this size. It is below 1 if ranks share
  // cores or memory bandwidth. Efficiency is this value times the effect of communication and imbalance.
  Figure compute_scaling;
};

struct ForecastPoint {
  int ranks = 0;
  double efficiency = 0;
  Range band;  // 95 % band of the bootstrap, widened by the residuals of the law.
};

struct Scaling {
  std::string unknown;  // Why there is no scaling; then the other members are empty.
  std::string mode;     // "weak": same batch per rank; "strong": same global batch.
  int base_ranks = 0;
  bool repeated = false;  // All sizes have several runs, so the intervals include the run-to-run variance.
  std::vector<ScalingPoint> points;   // Ordered by number of ranks.
  std::vector<std::string> left_out;  // Runs that cannot be used, with the reason.

  ScalingLaw law;  // Fitted to all points, with 95 % intervals.
  Range amdahl, gustafson, contention, coherency;
  std::string model;                    // The law of the forecast.
  std::string no_forecast;              // Why there is no forecast, and which run to add.
  std::vector<ForecastPoint> forecast;  // Up to eight times the largest size.
  double worth_until_ranks = 0;  // Beyond this size, a further rank adds less than half of a rank's work.
};

// Returns which law makes the forecast and how far further ranks are worth it, or why there is no forecast.
std::string forecast_text(const Scaling& scaling);

// Returns a sentence if sizes have only one run; otherwise "".
std::string repeats_text(const Scaling& scaling);

// Returns a sentence that lists the runs left out; "" if there are none.
std::string left_out_text(const Scaling& scaling);

// Returns a sentence if compute takes at least a tenth longer; otherwise "".
std::string slower_compute_text(const Scaling& scaling);

Scaling measure_scaling(const std::vector<SizedRun>& runs);

}  // namespace farandole

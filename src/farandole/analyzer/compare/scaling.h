// Weak and strong scaling efficiency from runs of different sizes, and its forecast. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "farandole/analyzer/compare/scaling_fit.h"
#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

// What scaling needs of a run; repeats of one size are separate entries.
struct SizedRun {
  std::string path;
  int ranks = 0;
  Figure global_batch;             // samples per step of all ranks
  std::vector<double> periods_ms;  // step by step; they add up to its window
  Figure compute_ms;               // of a rank and step, mean
};

struct ScalingPoint {
  int ranks = 0;
  double step_ms = 0;     // mean period, of repeats the mean of theirs
  double efficiency = 0;  // against the smallest size; 1 there
  // Bootstrap over repeats and blocks of steps; what the repeats differ by is widened as Student's t widens
  // the interval of a mean of so few.
  Range ci95;
  int runs = 1;  // repeats
  // How long a sample's compute takes at the base against here: below 1 where ranks share cores or memory
  // bandwidth. Efficiency is this times what communication and imbalance leave.
  Figure compute_scaling;
};

struct ForecastPoint {
  int ranks = 0;
  double efficiency = 0;
  Range band;  // 95 %: of the bootstrap, widened by what the law misses the points by
};

struct Scaling {
  std::string unknown;  // why there is no scaling; then the rest is empty
  std::string mode;     // "weak": same batch a rank; "strong": same global batch
  int base_ranks = 0;
  bool repeated = false;  // all sizes have several runs: the intervals hold what differs from run to run
  std::vector<ScalingPoint> points;  // by ranks
  std::vector<std::string>
      left_out;  // runs that say nothing of scaling, and why: killed in their first step, …

  ScalingLaw law;  // of all points; with its 95 % intervals
  Range amdahl, gustafson, contention, coherency;
  std::string model;                    // whose forecast it is
  std::string no_forecast;              // why there is none, and what run to add
  std::vector<ForecastPoint> forecast;  // to eight times the largest size
  double worth_until_ranks = 0;         // beyond, a further rank adds less than half of one
};

// "Beyond 96 ranks you pay more than you gain: …"; worth_until_ranks must be known.
std::string worth_text(const Scaling& scaling);

// Where repeats are missing: a sentence that says so; else "".
std::string repeats_text(const Scaling& scaling);

// Where runs are left out: a sentence that names them; else "".
std::string left_out_text(const Scaling& scaling);

// Where compute itself takes a tenth longer or more: a sentence that says so; else "".
std::string slower_compute_text(const Scaling& scaling);

Scaling measure_scaling(const std::vector<SizedRun>& runs);

}  // namespace farandole

// Fits scaling laws to measured efficiencies and evaluates their forecast. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>
#include <vector>

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

}  // namespace farandole

#include "farandole/analyzer/compare/scaling_fit.h"

#include <algorithm>

namespace farandole {
namespace {

// Least squares for y ≈ a·x.
double slope(const std::vector<double>& x, const std::vector<double>& y) {
  double xx = 0;
  double xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += x[i] * x[i];
    xy += x[i] * y[i];
  }
  return xx > 0 ? std::max(0.0, xy / xx) : 0;
}

// Least squares for y ≈ a·u + b·v with a, b ≥ 0. If one coefficient would be negative, only
// the other is used.
void plane(const std::vector<double>& u, const std::vector<double>& v, const std::vector<double>& y,
           double& a, double& b) {
  double uu = 0, uv = 0, vv = 0, uy = 0, vy = 0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    uu += u[i] * u[i];
    uv += u[i] * v[i];
    vv += v[i] * v[i];
    uy += u[i] * y[i];
    vy += v[i] * y[i];
  }
  const double determinant = uu * vv - uv * uv;
  if (determinant > 1e-12 * uu * vv) {
    a = (uy * vv - vy * uv) / determinant;
    b = (vy * uu - uy * uv) / determinant;
    if (a >= 0 && b >= 0) return;
  }
  const double only_a = slope(u, y);
  const double only_b = slope(v, y);
  const auto rest = [&](double p, double q) {
    double sum = 0;
    for (std::size_t i = 0; i < u.size(); ++i) {
      const double miss = y[i] - p * u[i] - q * v[i];
      sum += miss * miss;
    }
    return sum;
  };
  const bool keep_a = u.size() < 2 || rest(only_a, 0) <= rest(0, only_b);
  a = keep_a ? only_a : 0;
  b = keep_a ? 0 : only_b;
}

}  // namespace

ScalingLaw fit_scaling(const std::vector<SizedEfficiency>& points) {
  std::vector<double> more, both, cost, loss, rest;
  for (const auto& [x, efficiency] : points) {
    if (!(x > 1) || !(efficiency > 0)) continue;
    more.push_back(x - 1);
    both.push_back(x * (x - 1));
    cost.push_back(1 / efficiency - 1);
    loss.push_back(1 - efficiency);
    rest.push_back(1 - 1 / x);
  }
  ScalingLaw law;
  law.amdahl = slope(more, cost);
  law.gustafson = std::min(1.0, slope(rest, loss));
  plane(more, both, cost, law.contention, law.coherency);
  return law;
}

double efficiency_by(LawKind kind, const ScalingLaw& law, double x) {
  switch (kind) {
    case LawKind::amdahl:
      return 1 / (1 + law.amdahl * (x - 1));
    case LawKind::gustafson:
      return 1 - law.gustafson * (1 - 1 / x);
    default:
      return 1 / (1 + law.contention * (x - 1) + law.coherency * x * (x - 1));
  }
}

std::string name_of(LawKind kind) {
  switch (kind) {
    case LawKind::amdahl:
      return "Amdahl";
    case LawKind::gustafson:
      return "Gustafson";
    default:
      return "universal scalability";
  }
}

double worth_until(LawKind kind, const ScalingLaw& law, double most) {
  const auto throughput = [&](double x) { return x * efficiency_by(kind, law, x); };
  double x = 1;
  for (double next = x * 1.01; next <= most; next *= 1.01) {
    if (throughput(next) - throughput(x) < 0.5 * (next - x)) return x;
    x = next;
  }
  return most;
}

}  // namespace farandole

#include "farandole/analyzer/compare/scaling.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "farandole/analyzer/statistics/statistics.h"

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
  static constexpr const char* names[] = {"Amdahl", "Gustafson", "universal scalability"};
  return names[static_cast<std::size_t>(kind)];
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
namespace {

// Factor for the bootstrap's 95 % interval of a mean of `runs`. It corrects the deviation (n instead of n -
// 1) and replaces the normal quantile by Student's, because a few runs give only a rough deviation.
double widening(double runs) {
  return runs < 2 ? 1 : std::sqrt(runs / (runs - 1)) * student_quantile(runs - 1) / 1.96;
}

struct Size {
  double global_batch = 0;
  std::vector<std::vector<double>> repeats;  // Periods in ms, one vector per run.
  std::vector<Figure> compute_ms;            // One value per run.

  // Mean over runs; every run has the same weight.
  double mean_ms() const {
    double sum = 0;
    for (const auto& run : repeats) sum += mean(run);
    return sum / static_cast<double>(repeats.size());
  }
  // Draws runs and, in each run, blocks of steps, because consecutive steps are similar. Means of a few runs
  // drawn from themselves vary less than runs do; therefore their differences are widened, as a factor, so
  // that no time becomes negative.
  double resampled_ms(Bootstrap& bootstrap) const {
    double drawn_ms = 0;
    double steps_ms = 0;
    for (std::size_t i = 0; i < repeats.size(); ++i) {
      const auto& run = repeats[repeats.size() == 1 ? 0 : bootstrap.draw(repeats.size())];
      const auto block = static_cast<std::size_t>(std::sqrt(static_cast<double>(run.size())) / 1.5);
      drawn_ms += mean(run);
      steps_ms += bootstrap.resampled_mean(run, std::max<std::size_t>(1, block));
    }
    const auto runs = static_cast<double>(repeats.size());
    return steps_ms / runs * std::pow(drawn_ms / runs / mean_ms(), widening(runs) - 1);
  }
  std::size_t steps() const {
    std::size_t count = 0;
    for (const auto& run : repeats) count += run.size();
    return count;
  }
};
using Sizes = std::map<int, Size>;

bool nearly_equal(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

// Throughput per rank relative to that of the smallest size. The formula holds for weak scaling and, if the
// global batches are equal, for strong scaling: n·T_n / (N·T_N).
double efficiency(double base_batch_per_rank, double base_ms, double batch_per_rank, double ms) {
  return (batch_per_rank / ms) / (base_batch_per_rank / base_ms);
}

// Returns the time per sample in ms if it is known for all runs of the size.
Figure compute_per_sample(int ranks, const Size& size) {
  double sum = 0;
  for (const auto& ms : size.compute_ms) {
    if (!ms.value) return ms;
    sum += *ms.value;
  }
  return Figure::ratio(sum / static_cast<double>(size.compute_ms.size()), size.global_batch / ranks,
                       "no samples");
}

Figure compute_scaling(const Sizes& sizes, int ranks, const Size& size) {
  const auto base = compute_per_sample(sizes.begin()->first, sizes.begin()->second);
  const auto here = compute_per_sample(ranks, size);
  if (!base.value) return base;
  if (!here.value) return here;
  return Figure::ratio(*base.value, *here.value, "no compute in the window");
}

Range quantiles(const std::vector<double>& values) {
  return {quantile(values, 0.025), quantile(values, 0.975)};
}

std::vector<SizedEfficiency> efficiencies(const Sizes& sizes, auto step_ms) {
  const auto& [base_ranks, base] = *sizes.begin();
  const double base_ms = step_ms(base);
  std::vector<SizedEfficiency> points;
  for (const auto& [ranks, size] : sizes)
    points.push_back({static_cast<double>(ranks) / base_ranks,
                      points.empty() ? 1
                                     : efficiency(base.global_batch / base_ranks, base_ms,
                                                  size.global_batch / ranks, step_ms(size))});
  return points;
}

// The efficiencies of each resample and the law that fits them.
struct Resample {
  std::vector<SizedEfficiency> points;
  ScalingLaw law;
};

std::vector<Resample> resample(const Sizes& sizes) {
  constexpr std::size_t budget = 20'000'000;  // Limits the number of draws for long runs.
  std::size_t draws = 0;
  for (const auto& [ranks, size] : sizes) draws += size.steps();
  Bootstrap bootstrap(2718281828);
  std::vector<Resample> resamples(std::clamp<std::size_t>(budget / draws, 200, 2000));
  for (auto& one : resamples) {
    one.points = efficiencies(sizes, [&](const Size& size) { return size.resampled_ms(bootstrap); });
    one.law = fit_scaling(one.points);
  }
  return resamples;
}

Range interval_of(const std::vector<Resample>& resamples, auto value) {
  std::vector<double> values;
  for (const auto& one : resamples) values.push_back(value(one));
  return quantiles(values);
}

// Two unknowns need four sizes, and one needs three. The additional size shows whether the law fits.
LawKind choose_law(const Scaling& scaling) {
  if (scaling.points.size() >= 4) return LawKind::usl;
  return scaling.mode == "strong" ? LawKind::amdahl : LawKind::gustafson;
}

void forecast(Scaling& scaling, const std::vector<SizedEfficiency>& points,
              const std::vector<Resample>& resamples) {
  const int largest = scaling.points.back().ranks;
  if (scaling.points.size() < 3) {
    const int other = 2 * largest;
    scaling.no_forecast =
        fmt::format("two sizes are not enough to fit a law; add a run of {} ranks with the same batch {}",
                    other, scaling.mode == "weak" ? "per rank" : "of all ranks");
    return;
  }
  const auto kind = choose_law(scaling);
  scaling.model = name_of(kind);
  double miss = 0;
  for (const auto& point : points)
    miss = std::max(miss, std::abs(point.efficiency - efficiency_by(kind, scaling.law, point.x)));
  for (int ranks = 2 * largest, doublings = 0; doublings < 3 && ranks < (1 << 28); ranks *= 2, ++doublings) {
    const double x = static_cast<double>(ranks) / scaling.base_ranks;
    const auto band =
        interval_of(resamples, [&](const Resample& one) { return efficiency_by(kind, one.law, x); });
    scaling.forecast.push_back({ranks,
                                std::max(0.0, efficiency_by(kind, scaling.law, x)),
                                {std::max(0.0, band.low - miss), band.high + miss}});
  }
  const double most = 1024.0 * largest / scaling.base_ranks;
  const double worth = worth_until(kind, scaling.law, most);
  scaling.worth_until_ranks = worth < most ? worth * scaling.base_ranks : 0;
}

Scaling without_scaling(std::string why) {
  Scaling scaling;
  scaling.unknown = std::move(why);
  return scaling;
}

std::string mode_of(const Sizes& sizes) {
  const auto& [base_ranks, base] = *sizes.begin();
  bool weak = true;
  bool strong = true;
  for (const auto& [ranks, size] : sizes) {
    weak &= nearly_equal(size.global_batch / ranks, base.global_batch / base_ranks);
    strong &= nearly_equal(size.global_batch, base.global_batch);
  }
  return weak ? "weak" : strong ? "strong" : "";
}

// Returns why the run cannot be used for scaling; "" if it can be used.
std::string why_useless(const SizedRun& run) {
  if (!run.global_batch.value)
    return fmt::format("the global batch of {} is unknown: {}", run.path, run.global_batch.unknown);
  if (run.periods_ms.empty() || !(mean(run.periods_ms) > 0)) return run.path + " has no steps in its window";
  return "";
}

}  // namespace

std::string slower_compute_text(const Scaling& scaling) {
  if (scaling.points.empty()) return "";
  const auto& last = scaling.points.back();
  if (!last.compute_scaling.value || *last.compute_scaling.value > 0.9) return "";
  return fmt::format(
      "On {} ranks, the compute of a sample takes {:.1f} times as long as on {}: ranks share cores or "
      "memory bandwidth, or the clock frequency falls.",
      last.ranks, 1 / std::max(*last.compute_scaling.value, 1e-6), scaling.base_ranks);
}

std::string repeats_text(const Scaling& scaling) {
  if (scaling.repeated || scaling.points.empty()) return "";
  return "Some sizes have only one run, so that their intervals do not include the run-to-run variance; "
         "repeat these runs.";
}

std::string forecast_text(const Scaling& scaling) {
  if (!scaling.no_forecast.empty()) return "No forecast: " + scaling.no_forecast + ".";
  const auto& law = scaling.law;
  auto text = "Forecast by the " + scaling.model + " law" +
              (scaling.points.size() >= 4
                   ? fmt::format(" (contention {:.2g}, coherency {:.2g}).", law.contention, law.coherency)
                   : fmt::format(" (share that does not scale: {:.1f} %).",
                                 100 * (scaling.mode == "strong" ? law.amdahl : law.gustafson)));
  if (!(scaling.worth_until_ranks > 0)) return text;
  const bool none = scaling.worth_until_ranks < scaling.base_ranks + 1;
  return text + fmt::format(" {}, each further rank adds less than half of a rank's work.",
                            none ? "Beyond this size"
                                 : fmt::format("Beyond {:.0f} ranks", scaling.worth_until_ranks));
}

std::string left_out_text(const Scaling& scaling) {
  if (scaling.left_out.empty()) return "";
  return fmt::format("Left out: {}.", fmt::join(scaling.left_out, "; "));
}

Scaling measure_scaling(const std::vector<SizedRun>& runs) {
  Sizes sizes;
  std::vector<std::string> left_out;
  for (const auto& run : runs) {
    if (const auto why = why_useless(run); !why.empty()) {
      left_out.push_back(why);
      continue;
    }
    auto& size = sizes[run.ranks];
    if (!size.repeats.empty() && !nearly_equal(size.global_batch, *run.global_batch.value))
      return without_scaling(fmt::format("runs of {} ranks have different global batches ({} and {})",
                                         run.ranks, size.global_batch, *run.global_batch.value));
    size.global_batch = *run.global_batch.value;
    size.repeats.push_back(run.periods_ms);
    size.compute_ms.push_back(run.compute_ms);
  }
  if (sizes.size() < 2) {
    left_out.emplace_back("scaling needs runs of at least two sizes; add one of another number of ranks");
    return without_scaling(fmt::format("{}", fmt::join(left_out, "; ")));
  }
  Scaling scaling;
  scaling.left_out = std::move(left_out);
  scaling.mode = mode_of(sizes);
  if (scaling.mode.empty())
    return without_scaling(
        "the runs have neither the same batch per rank (weak) nor the same global batch (strong)");
  scaling.base_ranks = sizes.begin()->first;
  scaling.repeated = std::all_of(sizes.begin(), sizes.end(),
                                 [](const auto& size) { return size.second.repeats.size() > 1; });
  const auto points = efficiencies(sizes, [](const Size& size) { return size.mean_ms(); });
  const auto resamples = resample(sizes);
  std::size_t index = 0;
  for (const auto& [ranks, size] : sizes) {
    const auto ci95 =
        interval_of(resamples, [&](const Resample& one) { return one.points[index].efficiency; });
    scaling.points.push_back({ranks, size.mean_ms(), points[index].efficiency, ci95,
                              static_cast<int>(size.repeats.size()), compute_scaling(sizes, ranks, size)});
    ++index;
  }
  scaling.law = fit_scaling(points);
  scaling.amdahl = interval_of(resamples, [](const Resample& one) { return one.law.amdahl; });
  scaling.gustafson = interval_of(resamples, [](const Resample& one) { return one.law.gustafson; });
  scaling.contention = interval_of(resamples, [](const Resample& one) { return one.law.contention; });
  scaling.coherency = interval_of(resamples, [](const Resample& one) { return one.law.coherency; });
  forecast(scaling, points, resamples);
  return scaling;
}

}  // namespace farandole

#include "farandole/analyzer/comparison.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "farandole/analyzer/estimate.h"

namespace farandole {
namespace {

// A figure as a ratio of two sums over steps.
struct Sums {
  std::string why;  // not empty: unknown
  std::vector<double> above, below;
};

struct Measure {
  std::string name;
  bool relative;
  bool more_is_better;
  Sums (*sums)(const RunMetrics&, std::size_t);
  std::size_t phase = 0;
};

Sums of_steps(const RunMetrics& metrics) {
  Sums sums;
  if (metrics.window.steps.empty()) sums.why = metrics.window.no_steps;
  return sums;
}

// Samples of a step: the same in each.
Sums throughput(const RunMetrics& metrics, std::size_t) {
  auto sums = of_steps(metrics);
  if (!metrics.throughput.value) {
    sums.why = metrics.throughput.unknown;
    return sums;
  }
  const double samples = *metrics.throughput.value * metrics.window_ns() * 1e-9 /
                         static_cast<double>(metrics.window.steps.size());
  sums.below = metrics.window.periods_ms;
  sums.above.assign(sums.below.size(), samples * 1e3);
  return sums;
}

Sums step_time(const RunMetrics& metrics, std::size_t) {
  auto sums = of_steps(metrics);
  sums.above = metrics.window.periods_ms;
  sums.below.assign(sums.above.size(), 1);
  return sums;
}

Sums phase_time(const RunMetrics& metrics, std::size_t phase) {
  auto sums = of_steps(metrics);
  sums.above.resize(metrics.window.steps.size());
  for (const auto& rank : metrics.ranks)
    for (std::size_t i = 0; i < rank.step_phases.size(); ++i)
      sums.above[i] +=
          static_cast<double>(rank.step_phases[i][phase]) * 1e-6 / static_cast<double>(metrics.ranks.size());
  sums.below.assign(sums.above.size(), 1);
  return sums;
}

template <double StepTotals::*part>
Sums of_window(const RunMetrics& metrics, std::size_t) {
  auto sums = of_steps(metrics);
  for (std::size_t i = 0; i < metrics.steps.size(); ++i) {
    sums.above.push_back(metrics.steps[i].*part);
    sums.below.push_back(metrics.window.periods_ms[i] * 1e6 * static_cast<double>(metrics.ranks.size()));
  }
  return sums;
}

Sums overlap(const RunMetrics& metrics, std::size_t) {
  auto sums = of_steps(metrics);
  if (!metrics.overlap.value) sums.why = metrics.overlap.unknown;
  for (const auto& step : metrics.steps) {
    sums.above.push_back(step.overlap);
    sums.below.push_back(step.communication);
  }
  return sums;
}

std::vector<Measure> measures() {
  std::vector<Measure> all = {{"throughput", true, true, throughput},
                              {"step_ms", true, false, step_time},
                              {"parallel", false, true, of_window<&StepTotals::compute>},
                              {"overlap", false, true, overlap},
                              {"communication_fraction", false, false, of_window<&StepTotals::communication>},
                              {"wait_fraction", false, false, of_window<&StepTotals::waiting>}};
  for (std::size_t i = 0; i < phase_count; ++i)
    all.push_back({std::string(phase_names[i]) + "_ms", true, false, phase_time, i});
  return all;
}

Figure ratio_of(const Sums& sums) {
  if (!sums.why.empty()) return Figure::because(sums.why);
  double above = 0;
  double below = 0;
  for (std::size_t i = 0; i < sums.above.size(); ++i) {
    above += sums.above[i];
    below += sums.below[i];
  }
  return Figure::ratio(above, below, "there is nothing to divide by in the window");
}

std::optional<double> change_of(double now, double before, bool relative) {
  if (!relative) return now - before;
  if (!(before > 0)) return std::nullopt;
  return now / before - 1;
}

// One measure of all runs of a side.
struct Side {
  Figure figure;                  // of several runs the mean
  std::vector<double> values;     // run by run, where the figure is known
  std::optional<Estimate> steps;  // of a single run
};

Side side_of(const Measure& measure, const Runs& runs) {
  Side side;
  double sum = 0;
  for (const auto* run : runs) {
    const auto sums = measure.sums(*run, measure.phase);
    side.figure = ratio_of(sums);
    if (!side.figure.value) return side;
    side.values.push_back(*side.figure.value);
    sum += side.values.back();
    if (runs.size() == 1) side.steps = estimate_ratio(sums.above, sums.below);
  }
  side.figure = Figure::known(sum / static_cast<double>(runs.size()));
  return side;
}

std::optional<Range> interval_of(const Side& now, const Side& before, bool relative) {
  const auto between = [&](const Spread& spread) {
    return change_interval(*now.figure.value, *before.figure.value, spread, relative);
  };
  if (now.values.size() + before.values.size() > 2) return between(spread_of(now.values, before.values));
  if (!now.steps || !before.steps) return std::nullopt;
  return between(spread_of(*now.steps, *before.steps));
}

Difference difference_of(const Measure& measure, const Runs& now, const Runs& before) {
  constexpr double rounding = 1e-9;
  Difference difference{measure.name, measure.relative, measure.more_is_better, {}, {}, {}, {}, Change::same};
  const auto side_now = side_of(measure, now);
  const auto side_before = side_of(measure, before);
  difference.now = side_now.figure;
  difference.before = side_before.figure;
  if (!difference.now.value || !difference.before.value) {
    difference.change = !difference.now.value ? difference.now : difference.before;
    return difference;
  }
  const auto change = change_of(*difference.now.value, *difference.before.value, measure.relative);
  if (!change) {
    difference.change = Figure::because("the other run has none");
    return difference;
  }
  difference.change = Figure::known(*change);
  difference.ci95 = interval_of(side_now, side_before, measure.relative);
  if (difference.ci95 && (difference.ci95->low > rounding || difference.ci95->high < -rounding))
    difference.verdict = (*change > 0) == measure.more_is_better ? Change::better : Change::worse;
  return difference;
}

// The phase whose time changed most in the direction of the step's.
std::string cause_of(const Comparison& comparison, const Difference& step) {
  const Difference* cause = nullptr;
  double most = 0;
  const double sign = *step.change.value > 0 ? 1 : -1;
  for (std::size_t i = 0; i < phase_count; ++i) {
    const auto* phase = find_difference(comparison, std::string(phase_names[i]) + "_ms");
    if (phase == nullptr || !phase->now.value || !phase->before.value) continue;
    const double ms = sign * (*phase->now.value - *phase->before.value);
    if (ms <= most) continue;
    most = ms;
    cause = phase;
  }
  if (cause == nullptr) return "";
  return fmt::format("; most of it is {}, which takes {:.2f} instead of {:.2f} ms a step",
                     cause->name.substr(0, cause->name.size() - 3), *cause->now.value, *cause->before.value);
}

constexpr const char* no_repeats =
    " By how much one run differs from the next is unknown: that takes repeats, RUN RUN --against OLD OLD.";

std::string verdict_of(const Comparison& comparison) {
  const auto* step = find_difference(comparison, "step_ms");
  const auto* rate = find_difference(comparison, "throughput");
  const auto* main = rate != nullptr && rate->change.value ? rate : step;
  if (main == nullptr) return "The runs cannot be compared.";
  if (!main->change.value) return "The runs cannot be compared: " + main->change.unknown + ".";
  const auto* const what = main == rate ? "throughput" : "step time";
  const auto change = 100 * *main->change.value;
  if (!main->ci95)
    return fmt::format("The change in {}, {:+.1f} %, cannot be told from chance: too few steps.", what,
                       change);
  const auto interval =
      fmt::format("95 %: {:+.1f} to {:+.1f} %", 100 * main->ci95->low, 100 * main->ci95->high);
  if (main->verdict == Change::same)
    return fmt::format("No difference in {} that chance could not make ({:+.1f} %, {}).", what, change,
                       interval);
  const auto cause = step != nullptr && step->change.value ? cause_of(comparison, *step) : "";
  return fmt::format("{}: {} is {:.1f} % {} ({}){}.{}", main->verdict == Change::worse ? "Worse" : "Better",
                     what, std::abs(change), change > 0 ? "higher" : "lower", interval, cause,
                     comparison.between_runs ? "" : no_repeats);
}

// Of one run.
std::vector<std::pair<std::string, Figure>> other_figures(const RunMetrics& metrics) {
  const auto& times = metrics.window.step_ms;
  return {{"step_p95_ms",
           times.empty() ? Figure::because(metrics.window.no_steps) : Figure::known(quantile(times, 0.95))},
          {"load_balance", metrics.load_balance},
          {"communication", metrics.communication_efficiency},
          {"serialisation", metrics.serialisation},
          {"transfer", metrics.transfer_efficiency},
          {"exposed_fraction", metrics.fraction(&RankMetrics::exposed)}};
}

}  // namespace

std::string_view name_of(Change change) {
  switch (change) {
    case Change::better:
      return "better";
    case Change::worse:
      return "worse";
    default:
      return "same";
  }
}

std::string value_text(const Difference& difference, const Figure& figure) {
  if (!figure.value) return "unknown";
  const double value = std::clamp(*figure.value, -1e12, 1e12);
  if (!difference.relative) return fmt::format("{:.1f} %", 100 * value);
  if (difference.name.ends_with("_ms")) return fmt::format("{:.2f} ms", value);
  return fmt::format("{:.1f}", value);
}

std::string change_text(const Difference& difference, double change) {
  const double percent = 100 * std::clamp(change, -1e6, 1e6);
  return difference.relative ? fmt::format("{:+.1f} %", percent) : fmt::format("{:+.1f} points", percent);
}

const Difference* find_difference(const Comparison& comparison, std::string_view name) {
  for (const auto& difference : comparison.differences)
    if (difference.name == name) return &difference;
  return nullptr;
}

std::vector<std::pair<std::string, Figure>> figures_of(const Runs& runs) {
  std::vector<std::pair<std::string, Figure>> figures;
  for (const auto& measure : measures()) figures.emplace_back(measure.name, side_of(measure, runs).figure);
  auto others = other_figures(*runs.front());
  const auto count = static_cast<double>(runs.size());
  for (std::size_t i = 0; i < others.size(); ++i) {
    auto& mean = others[i].second;
    for (std::size_t run = 1; run < runs.size() && mean.value; ++run) {
      const auto next = other_figures(*runs[run])[i].second;
      mean = next.value ? Figure::known(*mean.value + *next.value) : next;
    }
    if (mean.value) *mean.value /= count;
  }
  figures.insert(figures.end(), others.begin(), others.end());
  return figures;
}

Comparison compare(const Runs& now, const Runs& before) {
  Comparison comparison;
  comparison.between_runs = now.size() + before.size() > 2;
  for (const auto& measure : measures()) {
    auto difference = difference_of(measure, now, before);
    const bool nothing = difference.now.value && difference.before.value && *difference.now.value == 0 &&
                         *difference.before.value == 0;
    if (!nothing) comparison.differences.push_back(std::move(difference));
  }
  comparison.verdict = verdict_of(comparison);
  const auto ranks_now = now.front()->ranks.size();
  const auto ranks_before = before.front()->ranks.size();
  if (ranks_now != ranks_before)
    comparison.verdict =
        fmt::format("The runs are of different size ({} and {} ranks). ", ranks_now, ranks_before) +
        comparison.verdict;
  return comparison;
}

}  // namespace farandole

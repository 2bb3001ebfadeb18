#include "farandole/analyzer/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "farandole/analyzer/findings/wait_causes.h"
#include "farandole/analyzer/statistics/statistics.h"
#include "farandole/base/error.h"
#include "farandole/base/quantile.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

// A figure that is the ratio of two sums over steps.
struct Sums {
  std::string why;  // Reason if the figure is unknown; otherwise empty.
  std::vector<double> above, below;
};

struct Measure {
  std::string name;
  bool relative;
  bool more_is_better;
  // nullptr: the figure is not a sum over steps, and a single run gives no variance for it.
  Sums (*sums)(const RunMetrics&, std::size_t);
  // Computes the figure as in the rest of the report; nullptr: the ratio of the sums is the figure.
  Figure (*figure)(const RunMetrics&) = nullptr;
  std::size_t phase = 0;
};

template <std::int64_t RankMetrics::*part>
Figure fraction(const RunMetrics& metrics) {
  return metrics.fraction(part);
}
template <Figure RunMetrics::*figure>
Figure member(const RunMetrics& metrics) {
  return metrics.*figure;
}

Sums of_steps(const RunMetrics& metrics) {
  Sums sums;
  if (metrics.window.steps.empty()) sums.why = metrics.window.no_steps;
  return sums;
}

// Every step has the same number of samples.
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
  if (sums.why.empty()) sums.why = metrics.phase_fraction(phase).unknown;
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

Sums waiting(const RunMetrics& metrics, std::size_t) {
  auto sums = of_window<&StepTotals::waiting>(metrics, 0);
  if (!metrics.no_waiting.empty()) sums.why = metrics.no_waiting;
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

Sums exposed(const RunMetrics& metrics, std::size_t) {
  auto sums = of_window<&StepTotals::communication>(metrics, 0);
  for (std::size_t i = 0; i < metrics.steps.size(); ++i) sums.above[i] -= metrics.steps[i].overlap;
  return sums;
}

Figure late_step_time(const RunMetrics& metrics) {
  const auto& times = metrics.window.step_ms;
  return times.empty() ? Figure::because(metrics.window.no_steps) : Figure::known(quantile(times, 0.95));
}

std::vector<Measure> measures() {
  std::vector<Measure> all = {
      {"throughput", true, true, throughput, member<&RunMetrics::throughput>},
      {"step_ms", true, false, step_time},
      {"parallel", false, true, of_window<&StepTotals::compute>, member<&RunMetrics::parallel_efficiency>},
      {"overlap", false, true, overlap, member<&RunMetrics::overlap>},
      {"communication_fraction", false, false, of_window<&StepTotals::communication>,
       fraction<&RankMetrics::communication>},
      {"wait_fraction", false, false, waiting, fraction<&RankMetrics::waiting>},
      {"exposed_fraction", false, false, exposed, fraction<&RankMetrics::exposed>}};
  for (std::size_t i = 0; i < phase_count; ++i)
    all.push_back({std::string(phase_names[i]) + "_ms", true, false, phase_time, nullptr, i});
  all.push_back({"step_p95_ms", true, false, nullptr, late_step_time});
  all.push_back({"load_balance", false, true, nullptr, member<&RunMetrics::load_balance>});
  all.push_back({"communication", false, true, nullptr, member<&RunMetrics::communication_efficiency>});
  all.push_back({"serialisation", false, true, nullptr, member<&RunMetrics::serialisation>});
  all.push_back({"transfer", false, true, nullptr, member<&RunMetrics::transfer_efficiency>});
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
  if (!relative || now == before) return now - before;
  if (!(before > 0)) return std::nullopt;
  return now / before - 1;
}

// One figure of all runs on one side.
struct Side {
  Figure figure;                  // For several runs, their mean.
  std::vector<double> values;     // One value per run whose figure is known.
  std::optional<Estimate> steps;  // Set for a single run.
};

Side side_of(const Measure& measure, const Runs& runs) {
  Side side;
  double sum = 0;
  for (const auto* run : runs) {
    const auto sums = measure.sums != nullptr ? measure.sums(*run, measure.phase) : Sums{};
    side.figure = measure.figure != nullptr ? measure.figure(*run) : ratio_of(sums);
    if (!side.figure.value) return side;
    side.values.push_back(*side.figure.value);
    sum += side.values.back();
    if (runs.size() == 1 && measure.sums != nullptr) side.steps = estimate_ratio(sums.above, sums.below);
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

// Fills in the values of both sides.
Difference difference_of(Difference difference, const Side& side_now, const Side& side_before) {
  constexpr double rounding = 1e-9;
  difference.now = side_now.figure;
  difference.before = side_before.figure;
  if (!difference.now.value || !difference.before.value) {
    difference.change = !difference.now.value ? difference.now : difference.before;
    return difference;
  }
  const auto change = change_of(*difference.now.value, *difference.before.value, difference.relative);
  if (!change) {
    difference.change = Figure::because("the other run has no value");
    return difference;
  }
  difference.change = Figure::known(*change);
  difference.ci95 = interval_of(side_now, side_before, difference.relative);
  if (difference.is_nothing()) difference.ci95 = Range{0, 0};
  if (difference.ci95 && (difference.ci95->low > rounding || difference.ci95->high < -rounding))
    difference.trend = (*change > 0) == difference.more_is_better ? Trend::better : Trend::worse;
  return difference;
}

}  // namespace

const Difference* find_difference(const Comparison& comparison, std::string_view name) {
  for (const auto& difference : comparison.differences)
    if (difference.name == name) return &difference;
  return nullptr;
}

std::vector<std::pair<std::string, Figure>> figures_of(const Runs& runs) {
  std::vector<std::pair<std::string, Figure>> figures;
  for (const auto& measure : measures()) figures.emplace_back(measure.name, side_of(measure, runs).figure);
  return figures;
}

namespace {

// Waiting time in seconds per step of one run, by late rank and its phase.
using Waits = std::map<std::pair<int, std::string>, double>;
Waits waits_of(const Runs& runs) {
  Waits waits;
  for (const auto* run : runs)
    for (const auto& cause : find_wait_causes(*run))
      waits[{run->ranks[cause.rank_index].rank, cause.phase}] +=
          cause.seconds /
          static_cast<double>(std::max<std::size_t>(1, run->window.steps.size()) * runs.size());
  return waits;
}

// Returns the cause of waiting that changed most in the direction of `sign`.
std::string waited_for(const Runs& now, const Runs& before, double sign) {
  auto changes = waits_of(now);
  for (const auto& [cause, seconds] : waits_of(before)) changes[cause] -= seconds;
  const auto most = std::max_element(changes.begin(), changes.end(), [&](const auto& a, const auto& b) {
    return sign * a.second < sign * b.second;
  });
  if (most == changes.end() || !(sign * most->second > 0)) return "";
  const auto& [rank, phase] = most->first;
  return phase.empty() ? fmt::format(" (mainly for rank {})", rank)
                       : fmt::format(" (mainly for rank {}'s {})", rank, phase);
}

// Returns the phase whose significant change is largest in the direction of the step's change, if it is at
// least half of the step's change.
std::string cause_of(const Comparison& comparison, const Difference& step, const Runs& now,
                     const Runs& before) {
  const Difference* cause = nullptr;
  const double all = *step.now.value - *step.before.value;
  double most = 0.5 * std::abs(all);
  for (std::size_t i = 0; i < phase_count; ++i) {
    const auto* phase = find_difference(comparison, std::string(phase_names[i]) + "_ms");
    if (phase == nullptr || phase->trend == Trend::same) continue;
    const double ms = (all > 0 ? 1 : -1) * (*phase->now.value - *phase->before.value);
    if (ms < most) continue;
    most = ms;
    cause = phase;
  }
  if (cause == nullptr) return "; no single phase explains half of the change";
  const auto phase = cause->name.substr(0, cause->name.size() - 3);
  return fmt::format("; the main cause is {}, which takes {:.2f} instead of {:.2f} ms per step{}", phase,
                     *cause->now.value, *cause->before.value,
                     phase == "wait" ? waited_for(now, before, all > 0 ? 1 : -1) : "");
}

constexpr const char* no_repeats =
    " The run-to-run variance is unknown; repeated runs are needed: RUN RUN2 --against OLD OLD2.";

std::string main_verdict(const Comparison& comparison, const Runs& now, const Runs& before) {
  const auto* step = find_difference(comparison, "step_ms");
  const auto* rate = find_difference(comparison, "throughput");
  const auto* main = rate != nullptr && rate->change.value ? rate : step;
  if (main == nullptr) return "The runs cannot be compared.";
  if (!main->change.value) return "The runs cannot be compared: " + main->change.unknown + ".";
  const auto* const what = main == rate ? "throughput" : "step time";
  const auto change = 100 * *main->change.value;
  if (!main->ci95)
    return fmt::format("The change in {}, {:+.1f} %, may be chance, because there are too few steps.", what,
                       change);
  const auto interval =
      fmt::format("95 %: {:+.1f} to {:+.1f} %", 100 * main->ci95->low, 100 * main->ci95->high);
  if (main->trend == Trend::same)
    return fmt::format("No significant difference in {} ({:+.1f} %, {}).", what, change, interval);
  const auto cause = step != nullptr && step->change.value ? cause_of(comparison, *step, now, before) : "";
  return fmt::format("{}: {} is {:.1f} % {} ({}){}.{}", main->trend == Trend::worse ? "Worse" : "Better",
                     what, std::abs(change), change > 0 ? "higher" : "lower", interval, cause,
                     comparison.between_runs ? "" : no_repeats);
}

std::string_view name_of(Trend change) {
  static constexpr const char* names[] = {"same", "better", "worse"};
  return names[static_cast<std::size_t>(change)];
}

std::string comparison_verdict(const Comparison& comparison, const Runs& now, const Runs& before) {
  const auto verdict = main_verdict(comparison, now, before);
  const auto ranks_now = now.front()->size();
  const auto ranks_before = before.front()->size();
  if (ranks_now == ranks_before) return verdict;
  return fmt::format("The runs have different numbers of ranks ({} and {}). {}", ranks_now, ranks_before,
                     verdict);
}

}  // namespace

Comparison compare(const Runs& now, const Runs& before) {
  Comparison comparison;
  comparison.between_runs = now.size() + before.size() > 2;
  for (const auto& measure : measures())
    comparison.differences.push_back(
        difference_of({measure.name, measure.relative, measure.more_is_better, {}, {}, {}, {}, Trend::same},
                      side_of(measure, now), side_of(measure, before)));
  comparison.verdict = comparison_verdict(comparison, now, before);
  return comparison;
}

std::string_view trend_text(const Difference& difference) {
  return difference.ci95 ? name_of(difference.trend) : "unknown";
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

std::string interval_text(const Difference& difference) {
  if (!difference.ci95) return "–";
  const double low = 100 * std::clamp(difference.ci95->low, -1e6, 1e6);
  return fmt::format("{:+.1f} to {}", low, change_text(difference, difference.ci95->high));
}

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

Condition parse_condition(std::string_view text) {
  const auto sign = text.find_first_of("<>");
  Condition condition;
  condition.text = text;
  const auto wrong = [&](const std::string& why) {
    return UserError(
        fmt::format("--fail-on \"{}\": {}; write for example throughput<-5% or overlap<0.5", text, why));
  };
  if (sign == std::string_view::npos) throw wrong("there is no < or >");
  condition.name = trimmed(text.substr(0, sign));
  condition.below = text[sign] == '<';
  auto bound = trimmed(text.substr(sign + 1));
  condition.of_change = bound.ends_with('%');
  if (condition.of_change) bound = trimmed(bound.substr(0, bound.size() - 1));
  if (bound.starts_with('+')) bound.remove_prefix(1);
  const auto number = parse_number<double>(bound);
  if (!number || !std::isfinite(*number)) throw wrong("the bound is not a number");
  condition.bound = condition.of_change ? *number / 100 : *number;
  std::vector<std::string> names;
  const RunMetrics nothing;
  for (const auto& [name, figure] : figures_of({&nothing})) names.push_back(name);
  if (std::find(names.begin(), names.end(), condition.name) == names.end())
    throw wrong(fmt::format("'{}' is not known; use one of {}", condition.name, fmt::join(names, ", ")));
  return condition;
}

}  // namespace

std::vector<Condition> parse_conditions(std::string_view text) {
  std::vector<Condition> conditions;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    const auto one = trimmed(text.substr(0, comma));
    if (!one.empty()) conditions.push_back(parse_condition(one));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return conditions;
}

void refuse_changes(const std::vector<Condition>& conditions) {
  for (const auto& condition : conditions)
    if (condition.of_change)
      throw UserError(
          fmt::format("--fail-on \"{}\" checks a change and needs --against RUN", condition.text));
}

namespace {

Figure figure_of(const Condition& condition, const Runs& runs, const Comparison* comparison) {
  if (condition.of_change) {
    if (comparison == nullptr) return Figure::because(nothing_to_compare_with);
    return find_difference(*comparison, condition.name)->change;
  }
  for (const auto& [name, value] : figures_of(runs))
    if (name == condition.name) return value;
  return Figure::because("it is unknown");
}

// Returns why the condition, which the figure meets, fails; "" if the change may be chance.
std::string reason(const Condition& condition, double figure, const Comparison* comparison) {
  if (!condition.of_change) return fmt::format("it is {:.4g}", figure);
  const auto& difference = *find_difference(*comparison, condition.name);
  const auto changed = fmt::format("it changed by {:+.1f} %", 100 * figure);
  if (!difference.ci95)
    return "unknown: " + changed +
           (comparison->between_runs ? ", but no interval shows whether it is chance"
                                     : ", but repeated runs or more steps are needed to exclude chance");
  return difference.trend != Trend::same ? changed : "";
}

}  // namespace

std::vector<std::string> failures(const std::vector<Condition>& conditions, const Runs& runs,
                                  const Comparison* comparison) {
  std::vector<std::string> failed;
  for (const auto& condition : conditions) {
    const auto figure = figure_of(condition, runs, comparison);
    if (!figure.value) {
      failed.push_back(fmt::format("{}: unknown: {}", condition.text, figure.unknown));
      continue;
    }
    const bool holds = condition.below ? *figure.value < condition.bound : *figure.value > condition.bound;
    const auto why = holds ? reason(condition, *figure.value, comparison) : "";
    if (!why.empty()) failed.push_back(condition.text + ": " + why);
  }
  return failed;
}

}  // namespace farandole

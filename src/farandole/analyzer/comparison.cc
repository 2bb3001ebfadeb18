#include "farandole/analyzer/comparison.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/base/error.h"
#include "farandole/base/parse_number.h"

namespace farandole {
namespace {

// A figure as a ratio of two sums over steps, so that it can be drawn anew.
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

// The sums' ratio over blocks of steps drawn with replacement; blocks of the cube root of the number of
// steps.
std::optional<double> drawn_ratio(const Sums& sums, Bootstrap& bootstrap) {
  const auto count = sums.above.size();
  const auto block =
      std::max<std::size_t>(1, static_cast<std::size_t>(std::cbrt(static_cast<double>(count))));
  double above = 0;
  double below = 0;
  for (std::size_t taken = 0; taken < count; taken += block) {
    const auto first = bootstrap.draw(count);
    for (std::size_t i = 0; i < block; ++i) {
      above += sums.above[(first + i) % count];
      below += sums.below[(first + i) % count];
    }
  }
  if (!(below > 0)) return std::nullopt;
  return above / below;
}

std::optional<double> change_of(double now, double before, bool relative) {
  if (!relative) return now - before;
  if (!(before > 0)) return std::nullopt;
  return now / before - 1;
}

std::optional<Range> change_interval(const Sums& now, const Sums& before, bool relative) {
  constexpr std::size_t budget = 2'000'000;  // draws
  if (now.above.size() < 6 || before.above.size() < 6) return std::nullopt;
  Bootstrap bootstrap(577215664);
  std::vector<double> changes;
  for (auto left = std::clamp<std::size_t>(budget / (now.above.size() + before.above.size()), 200, 1000);
       left > 0; --left) {
    const auto a = drawn_ratio(now, bootstrap);
    const auto b = drawn_ratio(before, bootstrap);
    const auto change = a && b ? change_of(*a, *b, relative) : std::nullopt;
    if (!change) return std::nullopt;
    changes.push_back(*change);
  }
  return Range{quantile(changes, 0.025), quantile(changes, 0.975)};
}

Difference difference_of(const Measure& measure, const RunMetrics& now, const RunMetrics& before) {
  Difference difference{measure.name, measure.relative, measure.more_is_better, {}, {}, {}, {}, Change::same};
  const auto sums_now = measure.sums(now, measure.phase);
  const auto sums_before = measure.sums(before, measure.phase);
  difference.now = ratio_of(sums_now);
  difference.before = ratio_of(sums_before);
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
  difference.ci95 = change_interval(sums_now, sums_before, measure.relative);
  if (difference.ci95 && (difference.ci95->low > 0 || difference.ci95->high < 0))
    difference.verdict = (*change > 0) == measure.more_is_better ? Change::better : Change::worse;
  return difference;
}

const Difference* find(const Comparison& comparison, std::string_view name) {
  for (const auto& difference : comparison.differences)
    if (difference.name == name) return &difference;
  return nullptr;
}

// The phase whose time changed most in the direction of the step's.
std::string cause_of(const Comparison& comparison, const Difference& step) {
  const Difference* cause = nullptr;
  double most = 0;
  const double sign = *step.change.value > 0 ? 1 : -1;
  for (std::size_t i = 0; i < phase_count; ++i) {
    const auto* phase = find(comparison, std::string(phase_names[i]) + "_ms");
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

std::string verdict_of(const Comparison& comparison) {
  const auto* step = find(comparison, "step_ms");
  const auto* rate = find(comparison, "throughput");
  const auto* main = rate != nullptr && rate->change.value ? rate : step;
  if (main == nullptr || !main->change.value)
    return "The runs cannot be compared: " + main->change.unknown + ".";
  const auto* const what = main == rate ? "throughput" : "step time";
  if (main->verdict == Change::same)
    return fmt::format("No difference in {} that chance could not make ({:+.1f} %).", what,
                       100 * *main->change.value);
  const auto cause = step != nullptr && step->change.value ? cause_of(comparison, *step) : "";
  const bool worse = main->verdict == Change::worse;
  return fmt::format("{}: {} is {:.1f} % {} (95 %: {:+.1f} to {:+.1f} %){}.", worse ? "Worse" : "Better",
                     what, 100 * std::abs(*main->change.value), *main->change.value > 0 ? "higher" : "lower",
                     100 * main->ci95->low, 100 * main->ci95->high, cause);
}

// Figures that conditions may name besides the differences.
std::vector<std::pair<std::string, Figure>> figures_of(const RunMetrics& metrics) {
  std::vector<std::pair<std::string, Figure>> figures;
  for (const auto& measure : measures())
    figures.emplace_back(measure.name, ratio_of(measure.sums(metrics, measure.phase)));
  const auto& times = metrics.window.step_ms;
  figures.emplace_back("step_p95_ms", times.empty() ? Figure::because(metrics.window.no_steps)
                                                    : Figure::known(quantile(times, 0.95)));
  figures.emplace_back("load_balance", metrics.load_balance);
  figures.emplace_back("communication", metrics.communication_efficiency);
  figures.emplace_back("serialisation", metrics.serialisation);
  figures.emplace_back("transfer", metrics.transfer_efficiency);
  figures.emplace_back("exposed_fraction", metrics.fraction(&RankMetrics::exposed));
  return figures;
}

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
  if (!number || !std::isfinite(*number)) throw wrong("the bound is no number");
  condition.bound = condition.of_change ? *number / 100 : *number;
  std::vector<std::string> names;
  for (const auto& [name, figure] : figures_of(RunMetrics{})) names.push_back(name);
  if (std::find(names.begin(), names.end(), condition.name) == names.end())
    throw wrong(fmt::format("'{}' is not known; there are {}", condition.name, fmt::join(names, ", ")));
  return condition;
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

Comparison compare(const RunMetrics& now, const RunMetrics& before) {
  Comparison comparison;
  for (const auto& measure : measures()) {
    auto difference = difference_of(measure, now, before);
    const bool nothing = difference.now.value && difference.before.value && *difference.now.value == 0 &&
                         *difference.before.value == 0;
    if (!nothing) comparison.differences.push_back(std::move(difference));
  }
  comparison.verdict = verdict_of(comparison);
  if (now.ranks.size() != before.ranks.size())
    comparison.verdict = fmt::format("The runs are of different size ({} and {} ranks). ", now.ranks.size(),
                                     before.ranks.size()) +
                         comparison.verdict;
  return comparison;
}

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

std::vector<std::string> failures(const std::vector<Condition>& conditions, const RunMetrics& metrics,
                                  const Comparison* comparison) {
  std::vector<std::string> failed;
  const auto figures = figures_of(metrics);
  for (const auto& condition : conditions) {
    Figure figure;
    bool certain = true;
    if (condition.of_change) {
      if (comparison == nullptr)
        throw UserError(
            fmt::format("--fail-on \"{}\" is about a change: it needs --against RUN", condition.text));
      const auto* difference = find(*comparison, condition.name);
      if (difference == nullptr)
        figure = Figure::because("it is 0 in both runs, or is not compared");
      else
        figure = difference->change;
      certain = difference == nullptr || difference->verdict != Change::same || !difference->ci95;
    } else {
      for (const auto& [name, value] : figures)
        if (name == condition.name) figure = value;
    }
    if (!figure.value) {
      failed.push_back(fmt::format("{}: unknown: {}", condition.text, figure.unknown));
      continue;
    }
    const bool holds = condition.below ? *figure.value < condition.bound : *figure.value > condition.bound;
    if (holds && certain)
      failed.push_back(condition.of_change
                           ? fmt::format("{}: it changed by {:+.1f} %", condition.text, 100 * *figure.value)
                           : fmt::format("{}: it is {:.4g}", condition.text, *figure.value));
  }
  return failed;
}

}  // namespace farandole

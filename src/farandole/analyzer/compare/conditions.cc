#include "farandole/analyzer/compare/conditions.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
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
  return difference.verdict != Change::same ? changed : "";
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

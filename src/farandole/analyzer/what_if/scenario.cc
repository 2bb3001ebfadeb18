#include "farandole/analyzer/what_if/scenario.h"

#include <filesystem>
#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

constexpr int most_scenario_ranks = 1 << 16;

[[noreturn]] void refuse(std::string_view condition, std::string_view why) {
  throw UserError(fmt::format("--what-if: '{}' {}", condition, why));
}

// Returns the number if the whole `text`, or `text` without `unit`, is a number above 0.
std::optional<double> positive(std::string_view text, std::string_view unit) {
  if (!unit.empty() && text.ends_with(unit)) text.remove_suffix(unit.size());
  const auto number = parse_number<double>(text);
  return number && *number >= 1 / largest_condition && *number <= largest_condition ? number : std::nullopt;
}

std::optional<int> integer(std::string_view text) {
  const auto number = parse_number<int>(text);
  return number && *number >= 0 && *number <= most_scenario_ranks ? number : std::nullopt;
}

Delay parse_delay(std::string_view condition, std::string_view value) {
  const auto at = value.find('@');
  const auto rank = integer(value.substr(0, at));
  const auto ms = at == value.npos ? std::nullopt : positive(value.substr(at + 1), "ms");
  if (!rank || !ms)
    refuse(condition, "is not a delay; write delay=1@20 to delay rank 1 by 20 ms in every step");
  return {*rank, *ms};
}

void add_condition(std::string_view condition, Scenario& scenario) {
  const auto equals = condition.find('=');
  const auto name = condition.substr(0, equals);
  const auto value = equals == condition.npos ? std::string_view() : condition.substr(equals + 1);
  if (condition == "no-straggler") {
    scenario.no_straggler = true;
  } else if (condition == "no-checkpoint") {
    scenario.no_checkpoint = true;
  } else if (name == "bucket-mb") {
    scenario.bucket_mb = positive(value, "");
    if (!scenario.bucket_mb) refuse(condition, "needs a number of MiB above 0, for example bucket-mb=4");
  } else if (name == "bandwidth") {
    scenario.bandwidth = positive(value, "x");
    if (!scenario.bandwidth) refuse(condition, "needs a factor above 0, for example bandwidth=2x");
  } else if (name == "ranks") {
    scenario.ranks = integer(value);
    if (scenario.ranks.value_or(0) < 1) refuse(condition, "needs a number of ranks, for example ranks=8");
  } else if (name == "delay") {
    scenario.delays.push_back(parse_delay(condition, value));
  } else {
    refuse(condition,
           "is not known; use bucket-mb=MIB, bandwidth=FACTORx, ranks=N, no-straggler, "
           " no-checkpoint or delay=RANK@MS");
  }
}

}  // namespace

Scenario parse_scenario(std::string_view text) {
  Scenario scenario;
  scenario.text = text;
  for (;;) {
    const auto comma = text.find(',');
    add_condition(text.substr(0, comma), scenario);
    if (comma == text.npos) return scenario;
    text.remove_prefix(comma + 1);
  }
}

HeldOutRun parse_held_out(const std::string& text) {
  std::error_code ignored;
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || std::filesystem::exists(text, ignored)) return {text, {}};
  return {text.substr(0, colon), parse_scenario(std::string_view(text).substr(colon + 1))};
}

}  // namespace farandole

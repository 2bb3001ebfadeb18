#include "farandole/analyzer/what_if/validation.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/metrics/window.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

// Returns how the run differs from the predicting run. Conditions given by the user
// take precedence over run.json.
Scenario difference(const Replay& replay, const RunModel& run, Scenario scenario) {
  std::vector<std::string> parts;
  if (!scenario.text.empty()) parts.push_back(scenario.text);
  const auto& facts = run.facts;
  const auto size = facts.bucket_mb.value_or(0);
  if (!scenario.bucket_mb && size > 0 && size <= largest_condition && size != replay.bucket_mb) {
    scenario.bucket_mb = size;
    parts.push_back(fmt::format("bucket-mb={:g}", size));
  }
  const auto ranks = std::max(run.world_size(), run.ranks.size());
  if (!scenario.ranks && ranks != replay.size) {
    scenario.ranks = static_cast<int>(ranks);
    parts.push_back(fmt::format("ranks={}", ranks));
  }
  scenario.text = fmt::format("{}", fmt::join(parts, ","));
  return scenario;
}

HeldOutResult test(const Replay& replay, const HeldOutRun& held_out) try {
  HeldOutResult result;
  result.path = held_out.path;
  const auto run = read_run(held_out.path);
  result.scenario = difference(replay, run, held_out.conditions);
  std::vector<std::string> ignored;
  const auto window = choose_window(run, ignored);
  if (window.periods_ms.empty()) {
    result.unknown = window.no_steps;
    return result;
  }
  if (run.facts.compression && !replay.compression.empty() && *run.facts.compression != replay.compression) {
    result.unknown = "it has --compression " + *run.facts.compression +
                     ", and the run that predicts it does not contain its cost";
    return result;
  }
  const auto prediction = predict(replay, result.scenario);
  result.unknown = prediction.unknown;
  if (!result.unknown.empty()) return result;
  result.predicted_ms = prediction.step_ms;
  result.band = prediction.band;
  result.measured_ms = quantile(window.periods_ms, 0.5);
  result.measured_ci95 =
      median_interval(window.periods_ms).value_or(Range{result.measured_ms, result.measured_ms});
  result.error = result.predicted_ms / result.measured_ms - 1;
  return result;
} catch (const CorruptInput& error) {
  HeldOutResult result;
  result.path = held_out.path;
  result.scenario = held_out.conditions;
  result.unknown = error.what();
  return result;
}

}  // namespace

Validation validate(const std::filesystem::path& base, const Replay& replay,
                    const std::vector<HeldOutRun>& runs) {
  Validation validation;
  validation.base = base;
  validation.base_ms =
      replay.known() ? Figure::known(replay.measured_ms) : Figure::because(replay.graph.unknown);
  std::vector<double> errors;
  for (const auto& run : runs) {
    validation.runs.push_back(test(replay, run));
    if (validation.runs.back().unknown.empty()) errors.push_back(std::abs(validation.runs.back().error));
  }
  if (errors.empty()) return validation;
  validation.median_error = quantile(errors, 0.5);
  validation.p95_error = quantile(errors, 0.95);
  return validation;
}

}  // namespace farandole

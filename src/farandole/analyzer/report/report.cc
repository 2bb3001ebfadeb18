#include "farandole/analyzer/report/report.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/base/run/earlier_starts.h"
#include "farandole/timeline/recorder/run_starts.h"

namespace farandole {

RunReport analyze_run(const std::filesystem::path& path) {
  auto run = read_run(path);
  RunReport report;
  report.path = path;
  report.facts = run.facts;
  report.events = run.events;
  report.resources = resources_of(run);
  report.log = std::move(run.log);
  report.metrics = measure(run);
  report.stragglers = find_stragglers(report.metrics);
  report.wait_causes = find_wait_causes(report.metrics);
  report.losses = find_losses(report.metrics, report.wait_causes);
  std::error_code ignored;
  if (std::filesystem::is_directory(path / "recorder", ignored) && !is_earlier_start(path))
    report.goodput = goodput_of(read_run_starts(path));
  report.verdict = verdict_of(report.metrics, report.stragglers, report.wait_causes);
  report.findings = findings_of(report.metrics, report.stragglers, report.wait_causes);
  return report;
}

namespace {

// Mean over ranks and steps, with the time in which ranks wait for a core, because more ranks
// may share cores.
Figure compute_ms_of(const RunMetrics& metrics) {
  if (!metrics.no_compute.empty()) return Figure::because(metrics.no_compute);
  double sum = 0;
  for (const auto& rank : metrics.ranks)
    sum += static_cast<double>(rank.compute + (rank.gpu ? 0 : rank.core_wait)) * 1e-6;
  return Figure::ratio(sum, static_cast<double>(metrics.ranks.size() * metrics.window.steps.size()),
                       metrics.window.no_steps);
}

}  // namespace

std::optional<ModelRate> model_rate_of(const RunReport& run) {
  const auto& steps_per_s = run.metrics.steps_per_s.value;
  return steps_per_s ? model_rate(run.facts, 1 / *steps_per_s) : std::nullopt;
}

bool has_gpu_part(const RunReport& run) {
  return run.metrics.no_gpu.empty() || (run.facts.device && *run.facts.device != "cpu");
}

std::string idle_text(const RunMetrics& metrics) {
  const auto gpu = gpu_shares(metrics);
  if (!gpu || gpu->idle < 0.0005) return "";
  std::vector<std::pair<double, std::string_view>> causes;
  for (std::size_t i = 0; i < idle_cause_count; ++i)
    if (gpu->idle_causes[i] >= 0.0005) causes.emplace_back(gpu->idle_causes[i], idle_cause_names[i]);
  std::stable_sort(causes.begin(), causes.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> parts;
  for (const auto& [fraction, name] : causes) parts.push_back(fmt::format("{} {:.1f}", name, 100 * fraction));
  return fmt::format("idle {:.1f}: {}", 100 * gpu->idle, fmt::join(parts, ", "));
}

std::string events_text(const TrainingLog& log) {
  std::uint64_t values = 0;
  for (const auto& curve : log.curves) values += curve.curve.not_finite();
  std::vector<std::string> parts;
  const auto part = [&](std::uint64_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"));
  };
  part(log.skipped_steps, "skipped step");
  part(log.rollbacks, "rollback");
  part(values, "logged value");
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool are_of_one_size(const RunReport& a, const RunReport& b) {
  return a.metrics.size() == b.metrics.size();
}

Runs repeats_of_first(const std::vector<RunReport>& runs) {
  Runs repeats;
  for (const auto& run : runs)
    if (are_of_one_size(run, runs.front())) repeats.push_back(&run.metrics);
  return repeats;
}

std::string against_text(const Report& report) {
  const auto more = report.against.size() - 1;
  return report.against.front().string() + (more > 0 ? fmt::format(" and {} more", more) : "");
}

Report report_of(std::vector<RunReport> runs) {
  std::vector<SizedRun> sized;
  for (const auto& run : runs) {
    const auto batch = run.facts.global_batch ? Figure::known(*run.facts.global_batch)
                                              : Figure::because("run.json has no global_batch");
    sized.push_back({run.path.string(), static_cast<int>(run.metrics.size()), batch,
                     run.metrics.window.periods_ms, compute_ms_of(run.metrics)});
  }
  Report report;
  report.scaling = measure_scaling(sized);
  report.runs = std::move(runs);
  return report;
}

}  // namespace farandole

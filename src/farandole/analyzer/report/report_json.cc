#include "farandole/analyzer/compare/comparison_text.h"
#include "farandole/analyzer/metrics/node_metrics.h"
#include "farandole/analyzer/report/json_values.h"
#include "farandole/analyzer/report/report_formats.h"
#include "farandole/analyzer/what_if/what_if_json.h"

namespace farandole {
namespace {

using Json = nlohmann::ordered_json;

double seconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

Json step_json(const Window& window) {
  if (window.step_ms.empty()) return unknown(window.no_steps);
  const auto interval = median_interval(window.step_ms);
  return {{"median", quantile(window.step_ms, 0.5)},
          {"p95", quantile(window.step_ms, 0.95)},
          {"ci95", interval ? json_of(*interval) : unknown("fewer than 6 steps")}};
}

Json phases_json(const RunMetrics& metrics) {
  Json phases = Json::object();
  for (std::size_t i = 0; i < phase_count; ++i)
    phases[std::string(phase_names[i])] = json_of(metrics.phase_fraction(i));
  return phases;
}

Json collectives_json(const RunMetrics& metrics) {
  auto collectives = Json::array();
  for (const auto& row : metrics.collectives)
    collectives.push_back({{"name", row.name},
                           {"operation", row.operation},
                           {"count", row.count},
                           {"bytes", json_of(row.bytes)},
                           {"median_us", row.median_us},
                           {"wait_us", json_of(row.wait_us)},
                           {"transfer_us", json_of(row.known_transfer_us())},
                           {"last_rank", row.last_rank ? Json(*row.last_rank) : json_of(row.late_us)},
                           {"last_share", json_of(row.last_share)},
                           {"late_us", json_of(row.late_us)},
                           {"algbw_gbps", json_of(row.algbw_gbps)},
                           {"busbw_gbps", json_of(row.busbw_gbps)},
                           {"of_proven_bandwidth", json_of(row.of_proven)}});
  return collectives;
}

Json mpi_calls_json(const RunMetrics& metrics) {
  auto calls = Json::array();
  for (const auto& row : metrics.mpi_calls)
    calls.push_back({{"function", row.function},
                     {"count", row.count},
                     {"bytes", row.bytes},
                     {"median_us", row.median_us},
                     {"total_s", row.total_s}});
  return calls;
}

Json communication_json(const RunMetrics& metrics) {
  Json json = {{"fraction", json_of(metrics.fraction(&RankMetrics::communication))},
               {"overlap", json_of(metrics.overlap)},
               {"exposed_fraction", json_of(metrics.fraction(&RankMetrics::exposed))},
               {"wait_fraction", json_of(metrics.fraction(&RankMetrics::waiting))},
               {"transfer_fraction", json_of(metrics.fraction(&RankMetrics::transfer))},
               {"collectives", collectives_json(metrics)}};
  if (!metrics.mpi_calls.empty()) json["mpi_calls"] = mpi_calls_json(metrics);
  return json;
}

// The shares of two phases may overlap.
Json launched_json(const GpuShares& gpu) {
  auto phases = Json::object();
  for (std::size_t i = 0; i < phase_count; ++i)
    if (gpu.by_phase[i] > 0) phases[std::string(phase_names[i])] = gpu.by_phase[i];
  return phases.empty() ? unknown("the trace does not record in which phase GPU work was launched") : phases;
}

Json gpu_json(const std::optional<GpuShares>& gpu) {
  if (!gpu) return unknown("the window is empty");
  return {{"utilization", gpu->utilization},
          {"compute", gpu->compute},
          {"communication_only", gpu->communication_only},
          {"memcpy_only", gpu->memcpy_only},
          {"idle", gpu->idle},
          {"launched_in", launched_json(*gpu)}};
}

Json efficiency_json(const RunMetrics& metrics) {
  return {
      {"parallel", json_of(metrics.parallel_efficiency)},
      {"load_balance", json_of(metrics.load_balance)},
      {"communication", json_of(metrics.communication_efficiency)},
      {"serialisation", json_of(metrics.serialisation)},
      {"transfer", json_of(metrics.transfer_efficiency)},
      {"replay_error", metrics.replay_error ? Json(*metrics.replay_error) : unknown("there was no replay")}};
}

// Intervals from batches of steps.
Json confidence_json(const RunMetrics& metrics) {
  const auto interval = [](const std::optional<Range>& range) {
    return range ? json_of(*range) : unknown("fewer than 6 steps, or the figure itself is unknown");
  };
  return {{"throughput_samples_per_s", interval(metrics.throughput_ci95)},
          {"overlap", interval(metrics.overlap_ci95)},
          {"parallel", interval(metrics.parallel_ci95)},
          {"communication_fraction", interval(metrics.communication_ci95)},
          {"exposed_fraction", interval(metrics.exposed_ci95)},
          {"wait_fraction", interval(metrics.waiting_ci95)},
          {"transfer_fraction", interval(metrics.transfer_ci95)},
          {"gpu_utilization", interval(metrics.utilization_ci95)}};
}

Json wait_causes_json(const RunReport& run) {
  auto causes = Json::array();
  for (const auto& cause : run.wait_causes)
    causes.push_back(
        {{"rank", run.metrics.ranks[cause.rank_index].rank},
         {"phase", cause.phase.empty() ? unknown("no phase of its own explains it") : Json(cause.phase)},
         {"seconds", cause.seconds}});
  return causes;
}

Json losses_json(const RunReport& run) {
  auto losses = Json::array();
  for (const auto& loss : run.losses)
    losses.push_back({{"name", loss.name}, {"fraction", loss.fraction}, {"hours", loss.hours}});
  return {{"unit", hours_unit(run.metrics)}, {"losses", losses}};
}

Json critical_path_json(const RunReport& run) {
  if (!run.critical_path.unknown.empty()) return unknown(run.critical_path.unknown);
  auto ranks = Json::array();
  for (const auto& path : run.critical_path.ranks) {
    Json phases = Json::object();
    for (std::size_t i = 0; i < phase_count; ++i)
      phases[std::string(phase_names[i])] = seconds(path.phases[i]);
    phases["idle"] = seconds(path.idle);
    ranks.push_back({{"rank", run.metrics.ranks[path.rank_index].rank},
                     {"seconds", seconds(path.total())},
                     {"phases_s", phases}});
  }
  return {{"transfer_s", seconds(run.critical_path.transfer)},
          {"changes_of_rank", run.critical_path.changes},
          {"ranks", ranks}};
}

Json lateness_json(const RankMetrics& rank) {
  if (!rank.clock_known) return unknown("this rank's clock could not be aligned");
  if (rank.step_lateness_ms.empty()) return unknown("no collective that several ranks share in the window");
  return {{"median", quantile(rank.step_lateness_ms, 0.5)}, {"p95", quantile(rank.step_lateness_ms, 0.95)}};
}

Json wait_json(const RankMetrics& rank, const RunMetrics& metrics) {
  if (!metrics.no_waiting.empty()) return unknown(metrics.no_waiting);
  return rank.clock_known ? Json(seconds(rank.waiting)) : unknown("this rank's clock could not be aligned");
}

Json rank_json(const RankMetrics& rank, const RunMetrics& metrics) {
  const auto overlap = metrics.no_compute.empty() ? Figure::ratio(static_cast<double>(rank.overlap),
                                                                  static_cast<double>(rank.communication),
                                                                  "no communication in the window")
                                                  : Figure::because(metrics.no_compute);
  Json phases = Json::object();
  for (std::size_t i = 0; i < phase_count; ++i)
    phases[std::string(phase_names[i])] = json_of(metrics.phase_seconds(rank, i));
  return {
      {"rank", rank.rank},
      {"host", rank.host.empty() ? unknown("neither trace nor run.json names it") : Json(rank.host)},
      {"compute_s", json_of(metrics.seconds(rank, &RankMetrics::compute))},
      {"communication_s", json_of(metrics.seconds(rank, &RankMetrics::communication))},
      {"overlap", json_of(overlap)},
      {"exposed_s", json_of(metrics.seconds(rank, &RankMetrics::exposed))},
      {"other_s", json_of(metrics.seconds(rank, &RankMetrics::other))},
      {"idle_s", json_of(metrics.seconds(rank, &RankMetrics::idle))},
      {"wait_s", wait_json(rank, metrics)},
      {"phases_s", phases},
      {"lateness_ms", lateness_json(rank)},
      {"gpu", rank.gpu ? gpu_json(gpu_shares(*rank.gpu))
                       : unknown(metrics.no_gpu.empty() ? "no GPU kernels of this rank" : metrics.no_gpu)}};
}

Json node_json(const NodeMetrics& node, const RunMetrics& metrics) {
  Json lateness = node.lateness_median_ms.value
                      ? Json{{"median", *node.lateness_median_ms.value}, {"p95", *node.lateness_p95_ms.value}}
                      : unknown(node.lateness_median_ms.unknown);
  return {
      {"host", node.host},
      {"ranks", node.ranks},
      {"compute_s", json_of(node.compute_s)},
      {"communication_s", json_of(node.communication_s)},
      {"overlap", json_of(node.overlap)},
      {"exposed_s", json_of(node.exposed_s)},
      {"other_s", json_of(node.other_s)},
      {"idle_s", json_of(node.idle_s)},
      {"wait_s", json_of(node.wait_s)},
      {"lateness_ms", lateness},
      {"gpu", node.gpu ? gpu_json(node.gpu)
                       : unknown(metrics.no_gpu.empty() ? "no GPU kernels of this node" : metrics.no_gpu)}};
}

Json nodes_json(const RunMetrics& metrics) {
  if (metrics.nodes == 0) return unknown("neither trace nor run.json names the hosts");
  auto nodes = Json::array();
  for (const auto& node : node_metrics(metrics)) nodes.push_back(node_json(node, metrics));
  return nodes;
}

Json outliers_json(const Window& window) {
  auto steps = Json::array();
  for (const auto index : window.outliers())
    steps.push_back({{"step", window.step_numbers[index]}, {"ms", window.step_ms[index]}});
  return steps;
}

Json straggler_json(const Straggler& straggler, const RunMetrics& metrics) {
  const auto& rank = metrics.ranks[straggler.rank_index];
  return {
      {"rank", rank.rank},
      {"host", rank.host.empty() ? unknown("neither trace nor run.json names it") : Json(rank.host)},
      {"pattern", name_of(straggler.pattern)},
      {"phase", straggler.phase.empty() ? unknown("no phase of its own explains it") : Json(straggler.phase)},
      {"lateness_ms", straggler.lateness_ms},
      {"late_steps", straggler.late_steps}};
}

Json run_json(const RunReport& run) {
  const auto& metrics = run.metrics;
  const auto& window = metrics.window;
  auto ranks = Json::array();
  for (const auto& rank : metrics.ranks) ranks.push_back(rank_json(rank, metrics));
  auto stragglers = Json::array();
  for (const auto& straggler : run.stragglers) stragglers.push_back(straggler_json(straggler, metrics));
  auto findings = Json::array();
  for (const auto& finding : run.findings) {
    findings.push_back({{"title", finding.title},
                        {"evidence", finding.evidence},
                        {"gain_percent", finding.gain_percent},
                        {"change", finding.change}});
    if (const auto& replayed = finding.replayed)
      findings.back()["replayed"] = {{"what_if", replayed->scenario},
                                     {"gain_percent", replayed->gain_percent}};
  }
  Json json = {{"path", run.path.string()},
               {"ranks", metrics.size()},
               {"measured_ranks", metrics.ranks.size()},
               {"nodes", metrics.nodes > 0 ? Json(metrics.nodes)
                                           : unknown("neither trace nor run.json names the hosts")},
               {"steps", window.steps.size()},
               {"warmup_steps", window.warmup_steps},
               {"window_s", seconds(window.length())},
               {"throughput_samples_per_s", json_of(metrics.throughput)},
               {"step_ms", step_json(window)},
               {"outlier_steps", outliers_json(window)},
               {"phases", phases_json(metrics)},
               {"communication", communication_json(metrics)},
               {"gpu", metrics.no_gpu.empty() ? gpu_json(gpu_shares(metrics)) : unknown(metrics.no_gpu)},
               {"efficiency", efficiency_json(metrics)},
               {"ci95", confidence_json(metrics)},
               {"waterfall", losses_json(run)},
               {"wait_causes", wait_causes_json(run)},
               {"critical_path", critical_path_json(run)},
               {"by_node", nodes_json(metrics)},
               {"by_rank", ranks},
               {"stragglers", stragglers},
               {"verdict", run.verdict},
               {"findings", findings},
               {"warnings", metrics.warnings}};
  if (!run.what_if.empty()) json["what_if"] = what_if_json(*run.replay, run.what_if);
  return json;
}

Json forecast_json(const Scaling& scaling) {
  if (!scaling.no_forecast.empty()) return unknown(scaling.no_forecast);
  auto points = Json::array();
  for (const auto& point : scaling.forecast)
    points.push_back(
        {{"ranks", point.ranks}, {"efficiency", point.efficiency}, {"band", json_of(point.band)}});
  return points;
}

Json scaling_json(const Scaling& scaling) {
  if (!scaling.unknown.empty()) return unknown(scaling.unknown);
  auto points = Json::array();
  for (const auto& point : scaling.points)
    points.push_back({{"ranks", point.ranks},
                      {"efficiency", point.efficiency},
                      {"ci95", json_of(point.ci95)},
                      {"runs", point.runs},
                      {"compute_scaling", json_of(point.compute_scaling)}});
  const auto& law = scaling.law;
  const auto parameter = [](double value, const Range& range) {
    return Json{{"value", value}, {"ci95", json_of(range)}};
  };
  const Json fit = {
      {"amdahl", {{"serial", parameter(law.amdahl, scaling.amdahl)}}},
      {"gustafson", {{"serial", parameter(law.gustafson, scaling.gustafson)}}},
      {"usl",
       {{"contention", parameter(law.contention, scaling.contention)},
        {"coherency", parameter(law.coherency, scaling.coherency)}}},
      {"forecast_by", scaling.model.empty() ? unknown(scaling.no_forecast) : Json(scaling.model)}};
  return {{"mode", scaling.mode},
          {"base_ranks", scaling.base_ranks},
          {"holds_variation_between_runs", scaling.repeated},
          {"points", points},
          {"left_out", scaling.left_out},
          {"fit", fit},
          {"forecast", forecast_json(scaling)},
          {"worth_until_ranks",
           scaling.worth_until_ranks > 0
               ? Json(scaling.worth_until_ranks)
               : unknown(scaling.no_forecast.empty() ? "not within 1024 times the largest size"
                                                     : scaling.no_forecast)}};
}

Json comparison_json(const Report& report) {
  auto differences = Json::array();
  for (const auto& difference : report.comparison->differences)
    differences.push_back({{"name", difference.name},
                           {"now", json_of(difference.now)},
                           {"before", json_of(difference.before)},
                           {"change", json_of(difference.change)},
                           {"relative", difference.relative},
                           {"ci95", difference.ci95 ? json_of(*difference.ci95)
                                                    : unknown("fewer than 6 steps, or a figure is unknown")},
                           {"verdict", verdict_text(difference)}});
  auto against = Json::array();
  for (const auto& path : report.against) against.push_back(path.string());
  return {{"against", against},
          {"verdict", report.comparison->verdict},
          {"holds_variation_between_runs", report.comparison->between_runs},
          {"differences", differences}};
}

}  // namespace

std::string report_json(const Report& report) {
  auto runs = Json::array();
  for (const auto& run : report.runs) runs.push_back(run_json(run));
  Json json = {{"farandole_report", 1}, {"runs", runs}, {"scaling", scaling_json(report.scaling)}};
  if (report.comparison) json["comparison"] = comparison_json(report);
  if (!report.no_comparison.empty()) json["comparison"] = unknown(report.no_comparison);
  if (!report.validations.empty()) json["validation"] = validation_json(report.validations);
  if (!report.failures.empty()) json["failures"] = report.failures;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace farandole

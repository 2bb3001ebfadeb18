#include "farandole/analyzer/report/report_json.h"

#include <algorithm>
#include <map>

namespace farandole {
namespace {

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

Json communication_json(const RunReport& run) {
  const auto& metrics = run.metrics;
  Json json = {{"fraction", json_of(metrics.fraction(&RankMetrics::communication))},
               {"overlap", json_of(metrics.overlap)},
               {"exposed_fraction", json_of(metrics.fraction(&RankMetrics::exposed))},
               {"wait_fraction", json_of(metrics.fraction(&RankMetrics::waiting))},
               {"transfer_fraction", json_of(metrics.fraction(&RankMetrics::transfer))},
               {"collectives", collective_rows(run)}};
  if (!metrics.mpi_calls.empty()) json["mpi_calls"] = mpi_call_rows(run);
  return json;
}

constexpr const char* no_launch_phase = "the trace does not record in which phase GPU work was launched";

// The shares of two phases may overlap.
Json launched_json(const GpuShares& gpu) {
  auto phases = Json::object();
  for (std::size_t i = 0; i < phase_count; ++i)
    if (gpu.by_phase[i] > 0) phases[std::string(phase_names[i])] = gpu.by_phase[i];
  return phases.empty() ? unknown(no_launch_phase) : phases;
}

std::string key_of(std::string_view name) {
  std::string key(name);
  std::replace(key.begin(), key.end(), ' ', '_');
  return key;
}

Json gpu_json(const std::vector<const GpuTimes*>& gpus) {
  const auto shares = gpu_shares(gpus);
  if (!shares) return unknown(empty_window);
  Json causes = Json::object();
  for (std::size_t i = 0; i < idle_cause_count; ++i)
    causes[key_of(idle_cause_names[i])] = shares->idle_causes[i];
  const auto sum = [&](std::int64_t GpuTimes::*part) {
    double ns = 0;
    for (const auto* gpu : gpus) ns += static_cast<double>(gpu->*part);
    return ns * 1e-9;
  };
  return {{"utilization", shares->utilization},
          {"compute", shares->compute},
          {"communication_only", shares->communication_only},
          {"memcpy_only", shares->memcpy_only},
          {"idle", shares->idle},
          {"idle_causes", causes},
          {"seconds",
           {{"window", sum(&GpuTimes::window)},
            {"kernels", sum(&GpuTimes::kernels)},
            {"compute", sum(&GpuTimes::compute)},
            {"communication_only", sum(&GpuTimes::communication_only)},
            {"memcpy_only", sum(&GpuTimes::memcpy_only)},
            {"idle", sum(&GpuTimes::idle)}}},
          {"launched_in", launched_json(*shares)}};
}

Json efficiency_json(const RunMetrics& metrics) {
  return {{"parallel", json_of(metrics.parallel_efficiency)},
          {"load_balance", json_of(metrics.load_balance)},
          {"communication", json_of(metrics.communication_efficiency)},
          {"serialisation", json_of(metrics.serialisation)},
          {"transfer", json_of(metrics.transfer_efficiency)}};
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

Json text_or(const std::string& text, const char* why) {
  return text.empty() ? unknown(why) : Json(text);
}
constexpr const char* no_host = "neither trace nor run.json names it";
constexpr const char* no_phase = "no phase of its own explains it";

// What ranks have in common with their nodes: sums over the ranks, and lateness over all of their steps.
Json times_json(const std::vector<const RankMetrics*>& ranks, const RunMetrics& metrics, const char* no_gpu) {
  const auto sum = [&](std::int64_t RankMetrics::*part) {
    double all = 0;
    for (const auto* rank : ranks) {
      const auto of_rank = metrics.seconds(*rank, part);
      if (!of_rank.value) return of_rank;
      all += *of_rank.value;
    }
    return Figure::known(all);
  };
  const auto communication = sum(&RankMetrics::communication);
  const auto overlap = sum(&RankMetrics::overlap);
  std::vector<double> late;
  std::vector<const GpuTimes*> gpus;
  std::string no_clock;
  bool core_known = true;
  for (const auto* rank : ranks) {
    core_known = core_known && rank->core_wait_known;
    if (!rank->clock_known)
      no_clock = ranks.size() == 1 ? "this rank's clock could not be aligned"
                                   : "a rank's clock could not be aligned";
    late.insert(late.end(), rank->step_lateness_ms.begin(), rank->step_lateness_ms.end());
    if (rank->gpu) gpus.push_back(&*rank->gpu);
  }
  const auto no_wait = metrics.no_waiting.empty() ? no_clock : metrics.no_waiting;
  const auto across = [&](std::int64_t RankMetrics::*part) {
    return json_of(no_wait.empty() ? sum(part) : Figure::because(no_wait));
  };
  const auto no_lateness =
      no_clock.empty() ? "no collective that several ranks share in the window" : no_clock;
  return {
      {"compute_s", json_of(sum(&RankMetrics::compute))},
      {"communication_s", json_of(communication)},
      {"overlap_s", json_of(overlap)},
      {"overlap", json_of(overlap.value ? Figure::ratio(*overlap.value, *communication.value,
                                                        "no communication in the window")
                                        : overlap)},
      {"exposed_s", json_of(sum(&RankMetrics::exposed))},
      {"other_s", json_of(sum(&RankMetrics::other))},
      {"core_wait_s", core_known ? json_of(sum(&RankMetrics::core_wait))
                                 : unknown("the trace does not record how long ranks wait for a core")},
      {"idle_s", json_of(sum(&RankMetrics::idle))},
      {"wait_s", across(&RankMetrics::waiting)},
      {"transfer_s", across(&RankMetrics::transfer)},
      {"lateness_ms", late.empty() ? unknown(no_lateness)
                                   : Json{{"median", quantile(late, 0.5)}, {"p95", quantile(late, 0.95)}}},
      {"gpu", gpus.empty() ? unknown(metrics.no_gpu.empty() ? no_gpu : metrics.no_gpu) : gpu_json(gpus)}};
}

Json gpu_json(const RunMetrics& metrics) {
  std::vector<const GpuTimes*> gpus;
  for (const auto& rank : metrics.ranks)
    if (rank.gpu) gpus.push_back(&*rank.gpu);
  return metrics.no_gpu.empty() ? gpu_json(gpus) : unknown(metrics.no_gpu);
}

// Ranks with unknown hosts are left out.
Json nodes_json(const RunReport& run) {
  return run.metrics.nodes == 0 ? unknown("neither trace nor run.json names the hosts") : node_rows(run);
}

constexpr const char* no_log = "there is no metrics.jsonl with such lines";

Json value_at(double value, std::int64_t step) {
  return {{"value", value}, {"step", step}};
}

Json training_json(const TrainingLog& log) {
  if (log.curves.empty() && log.events.empty()) return unknown(no_log);
  auto curves = Json::array();
  for (const auto& [name, curve] : log.curves) {
    curves.push_back({{"name", name}, {"not_finite", curve.not_finite()}});
    auto& points = curves.back()["points"] = Json::array();
    for (const auto& point : curve.points())
      points.push_back({point.first_step, point.last_step, point.low, point.mean(), point.high});
    if (curve.empty()) continue;
    const auto &lowest = curve.lowest(), &highest = curve.highest(), &last = curve.points().back();
    curves.back()["first"] = value_at(curve.first(), curve.points().front().first_step);
    curves.back()["last"] = value_at(last.last, last.last_step);
    curves.back()["lowest"] = value_at(lowest.low, lowest.low_step);
    curves.back()["highest"] = value_at(highest.high, highest.high_step);
  }
  auto skipped = Json::array(), rollbacks = Json::array();
  for (const auto& event : log.events)
    if (event.to_step)
      rollbacks.push_back({{"step", event.step}, {"to_step", *event.to_step}});
    else
      skipped.push_back(event.step);
  return {{"curves", curves},
          {"skipped_steps", log.skipped_steps},
          {"skipped_at", skipped},
          {"rollbacks", log.rollbacks},
          {"rolled_back_at", rollbacks}};
}

Json resources_json(const RunReport& run) {
  const auto& resources = run.resources;
  const auto figure = [](std::optional<double> value, const char* why) {
    return value ? Json(*value) : unknown(why);
  };
  constexpr auto no_facts = "run.json does not have it", no_use = "neither trace nor metrics.jsonl has it";
  return {{"asked_cores", figure(resources.asked_cores, no_facts)},
          {"asked_memory_mib", figure(resources.asked_mib, no_facts)},
          {"busy_cores", figure(resources.busy_cores, no_use)},
          {"used_memory_mib", figure(resources.used_mib, no_use)},
          {"by_rank", resource_rows(run)}};
}

// Seconds are sums over all ranks.
Json steps_json(const RunMetrics& metrics) {
  const auto& window = metrics.window;
  const auto outliers = window.outliers();
  const auto known = [](double ns, const std::string& why_not) {
    return why_not.empty() ? Json(ns * 1e-9) : unknown(why_not);
  };
  auto steps = Json::array();
  for (std::size_t i = 0; i < window.steps.size(); ++i) {
    const auto& totals = metrics.steps[i];
    steps.push_back({{"step", window.step_numbers[i]},
                     {"start_s", seconds(window.steps[i].start)},
                     {"end_s", seconds(window.steps[i].end)},
                     {"longest_ms", window.step_ms[i]},
                     {"period_ms", window.periods_ms[i]},
                     {"compute_s", known(totals.compute, metrics.no_compute)},
                     {"communication_s", totals.communication * 1e-9},
                     {"overlap_s", known(totals.overlap, metrics.no_compute)},
                     {"wait_s", known(totals.waiting, metrics.no_waiting)},
                     {"outlier", std::binary_search(outliers.begin(), outliers.end(), i)}});
  }
  return steps;
}

// The rows of rank_rows(), with the lateness of each step.
Json ranks_json(const RunReport& run) {
  auto rows = rank_rows(run);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& rank = run.metrics.ranks[i];
    auto& late = rows[i]["lateness_by_step"] = Json::array();
    for (std::size_t step = 0; step < rank.step_lateness_ms.size(); ++step)
      late.push_back({{"step", run.metrics.window.step_numbers[rank.lateness_steps[step]]},
                      {"ms", rank.step_lateness_ms[step]}});
  }
  return rows;
}

Json outliers_json(const Window& window) {
  auto steps = Json::array();
  for (const auto index : window.outliers())
    steps.push_back({{"step", window.step_numbers[index]}, {"ms", window.step_ms[index]}});
  return steps;
}

}  // namespace

Json collective_rows(const RunReport& run) {
  auto rows = Json::array();
  for (const auto& row : run.metrics.collectives)
    rows.push_back({{"name", row.name},
                    {"operation", row.operation},
                    {"count", row.count},
                    {"bytes", json_of(row.bytes)},
                    {"median_us", row.median_us},
                    {"wait_us", json_of(row.wait_us)},
                    {"transfer_us", json_of(row.without_waiting(row.transfer_us))},
                    {"transfer_p10_us", json_of(row.without_waiting(row.transfer_p10_us))},
                    {"transfer_p90_us", json_of(row.without_waiting(row.transfer_p90_us))},
                    {"last_rank", row.last_rank ? Json(*row.last_rank) : json_of(row.late_us)},
                    {"last_share", json_of(row.last_share)},
                    {"late_us", json_of(row.late_us)},
                    {"algbw_gbps", json_of(row.algbw_gbps)},
                    {"busbw_gbps", json_of(row.busbw_gbps)},
                    {"of_proven_bandwidth", json_of(row.of_proven)},
                    {"total_s", row.total_s}});
  return rows;
}

Json mpi_call_rows(const RunReport& run) {
  auto rows = Json::array();
  for (const auto& row : run.metrics.mpi_calls)
    rows.push_back({{"function", row.function},
                    {"count", row.count},
                    {"bytes", row.bytes},
                    {"median_us", row.median_us},
                    {"total_s", row.total_s}});
  return rows;
}

Json kernel_rows(const RunReport& run) {
  constexpr std::size_t most_ranges = 8;
  auto rows = Json::array();
  for (const auto& row : run.metrics.kernels) {
    auto phases = Json::object();
    for (std::size_t i = 0; i < phase_count; ++i)
      if (row.by_phase[i] > 0) phases[std::string(phase_names[i])] = row.by_phase[i] * 1e-9;
    rows.push_back({{"name", row.name},
                    {"communicates", row.communicates},
                    {"calls", row.calls},
                    {"total_s", row.ns * 1e-9},
                    {"share", row.share},
                    {"phases_s", phases.empty() ? unknown(no_launch_phase) : phases}});
    if (row.by_range.empty()) continue;
    auto& ranges = rows.back()["launched_by"] = Json::array();
    for (const auto& [name, ns] : row.by_range)
      if (ranges.size() < most_ranges) ranges.push_back({{"name", name}, {"total_s", ns * 1e-9}});
    rows.back()["launched_by_count"] = row.by_range.size();
  }
  return rows;
}

Json copy_rows(const RunReport& run) {
  const auto no_bytes = [] { return unknown("the trace does not record the bytes of these"); };
  auto rows = Json::array();
  for (const auto& row : run.metrics.copies)
    rows.push_back({{"kind", row.kind},
                    {"calls", row.calls},
                    {"total_s", row.ns * 1e-9},
                    {"bytes", row.bytes > 0 ? Json(row.bytes) : no_bytes()},
                    {"gbps", row.bytes_ns > 0 ? Json(row.bytes / row.bytes_ns) : no_bytes()}});
  return rows;
}

Json wait_cause_rows(const RunReport& run) {
  auto rows = Json::array();
  for (const auto& cause : run.wait_causes)
    rows.push_back({{"rank", run.metrics.ranks[cause.rank_index].rank},
                    {"phase", text_or(cause.phase, no_phase)},
                    {"seconds", cause.seconds}});
  return rows;
}

Json loss_rows(const RunReport& run) {
  auto rows = Json::array();
  for (const auto& group : group_losses(run.losses))
    for (const auto& loss : group.parts)
      rows.push_back(
          {{"name", loss.name}, {"group", group.name}, {"fraction", loss.fraction}, {"hours", loss.hours}});
  return rows;
}

Json critical_path_json(const RunReport& run) {
  if (!run.metrics.critical_path.unknown.empty()) return unknown(run.metrics.critical_path.unknown);
  auto ranks = Json::array();
  for (const auto& path : run.metrics.critical_path.ranks) {
    Json phases = Json::object();
    for (std::size_t i = 0; i < phase_count; ++i)
      phases[std::string(phase_names[i])] = seconds(path.phases[i]);
    phases["idle"] = seconds(path.idle);
    ranks.push_back({{"rank", run.metrics.ranks[path.rank_index].rank},
                     {"seconds", seconds(path.total())},
                     {"phases_s", phases}});
  }
  return {{"transfer_s", seconds(run.metrics.critical_path.transfer)},
          {"changes_of_rank", run.metrics.critical_path.changes},
          {"ranks", ranks}};
}

Json rank_json(const RankMetrics& rank, const RunMetrics& metrics) {
  Json json = {{"rank", rank.rank}, {"host", text_or(rank.host, no_host)}};
  if (!rank.process.empty()) json["process"] = rank.process;
  json.update(times_json({&rank}, metrics, "no GPU kernels of this rank"));
  for (const auto& [device, times] : rank.devices) {
    json["gpus"].push_back(gpu_json({&times}));
    json["gpus"].back()["device"] = device;
  }
  for (std::size_t i = 0; i < phase_count; ++i)
    json["phases_s"][std::string(phase_names[i])] = json_of(metrics.phase_seconds(rank, i));
  return json;
}

Json rank_rows(const RunReport& run) {
  auto rows = Json::array();
  for (const auto& rank : run.metrics.ranks) rows.push_back(rank_json(rank, run.metrics));
  return rows;
}

// A key that is not known is left out.
Json resource_rows(const RunReport& run) {
  auto rows = Json::array();
  for (const auto& [rank, host, use] : run.resources.ranks) {
    rows.push_back({{"rank", rank}, {"host", text_or(host, no_host)}});
    const auto set = [&row = rows.back()](const char* key, std::optional<double> value) {
      if (value) row[key] = *value;
    };
    set("cpu_percent", use.cpu_percent);
    set("memory_mib", use.memory_mib);
    set("read_mb", use.read_mb);
    set("written_mb", use.written_mb);
    set("gpu_percent", use.gpu_percent);
    set("gpu_memory_mib", use.gpu_memory_mib);
  }
  return rows;
}

Json node_rows(const RunReport& run) {
  std::map<std::string, std::vector<const RankMetrics*>> hosts;
  for (const auto& rank : run.metrics.ranks)
    if (!rank.host.empty()) hosts[rank.host].push_back(&rank);
  auto rows = Json::array();
  for (const auto& [host, ranks] : hosts) {
    rows.push_back({{"host", host}, {"ranks", ranks.size()}});
    rows.back().update(times_json(ranks, run.metrics, "no GPU kernels of this node"));
  }
  return rows;
}

Json straggler_rows(const RunReport& run) {
  auto rows = Json::array();
  for (const auto& straggler : run.stragglers) {
    const auto& rank = run.metrics.ranks[straggler.rank_index];
    rows.push_back({{"rank", rank.rank},
                    {"host", text_or(rank.host, no_host)},
                    {"pattern", name_of(straggler.pattern)},
                    {"phase", text_or(straggler.phase, no_phase)},
                    {"lateness_ms", straggler.lateness_ms},
                    {"late_steps", straggler.late_steps}});
  }
  return rows;
}

Json finding_rows(const RunReport& run) {
  auto rows = Json::array();
  for (const auto& finding : run.findings)
    rows.push_back({{"title", finding.title},
                    {"evidence", finding.evidence},
                    {"gain_percent", finding.gain_percent},
                    {"change", finding.change}});
  return rows;
}

Json model_json(const RunFacts& facts, const ModelRate& rate) {
  Json json = {{"flops_per_step", *facts.model_flops},
               {"flops_from", facts.model_flops_from.value_or("unknown")},
               {"tflops", rate.tflops},
               {"mfu", unknown("the peak of the device is unknown; give it with --peak-tflops")}};
  if (!rate.mfu) return json;
  json["mfu"] = *rate.mfu;
  json["peak_tflops"] = *facts.peak_tflops;
  json["peak_from"] = facts.peak_from.value_or("unknown");
  return json;
}

Json run_json(const RunReport& run) {
  const auto& metrics = run.metrics;
  const auto& window = metrics.window;
  Json json = {{"path", run.path.string()},
               {"ranks", metrics.size()},
               {"measured_ranks", metrics.ranks.size()},
               {"nodes", metrics.nodes > 0 ? Json(metrics.nodes)
                                           : unknown("neither trace nor run.json names the hosts")},
               {"steps", window.steps.size()},
               {"warmup_steps", window.warmup_steps},
               {"window_s", seconds(window.length())},
               {"training", training_json(run.log)},
               {"resources", resources_json(run)},
               {"throughput_samples_per_s", json_of(metrics.throughput)},
               {"steps_per_s", json_of(metrics.steps_per_s)},
               {"step_ms", step_json(window)},
               {"outlier_steps", outliers_json(window)},
               {"phases", phases_json(metrics)},
               {"communication", communication_json(run)},
               {"gpu", gpu_json(metrics)},
               {"efficiency", efficiency_json(metrics)},
               {"ci95", confidence_json(metrics)},
               {"waterfall", {{"unit", hours_unit(metrics)}, {"losses", loss_rows(run)}}},
               {"wait_causes", wait_cause_rows(run)},
               {"critical_path", critical_path_json(run)},
               {"by_node", nodes_json(run)},
               {"by_rank", ranks_json(run)},
               {"by_step", steps_json(metrics)},
               {"stragglers", straggler_rows(run)},
               {"verdict", run.verdict},
               {"findings", finding_rows(run)},
               {"warnings", metrics.warnings}};
  if (const auto rate = model_rate_of(run)) json["model"] = model_json(run.facts, *rate);
  for (const auto& [owner, mib] : run.facts.gpu_memory_by_owner_mib)
    json["gpu_memory_by_owner_mib"][owner] = mib;
  if (metrics.no_gpu.empty()) {
    json["gpu_kernels"] = kernel_rows(run);
    json["gpu_copies"] = copy_rows(run);
  }
  if (run.goodput) json["goodput"] = goodput_json(*run.goodput);
  return json;
}

std::string report_json(const Report& report) {
  auto runs = Json::array();
  for (const auto& run : report.runs) runs.push_back(run_json(run));
  Json json = {{"farandole_report", 1}, {"runs", runs}, {"scaling", scaling_json(report.scaling)}};
  if (report.comparison) json["comparison"] = comparison_json(report);
  if (!report.no_comparison.empty()) json["comparison"] = unknown(report.no_comparison);
  if (!report.failures.empty()) json["failures"] = report.failures;
  return json_text(json, 2) + "\n";
}

namespace {

Json forecast_json(const Scaling& scaling) {
  if (!scaling.no_forecast.empty()) return unknown(scaling.no_forecast);
  auto points = Json::array();
  for (const auto& point : scaling.forecast)
    points.push_back(
        {{"ranks", point.ranks}, {"efficiency", point.efficiency}, {"band", json_of(point.band)}});
  return points;
}

}  // namespace

Json scaling_json(const Scaling& scaling) {
  if (!scaling.unknown.empty()) return unknown(scaling.unknown);
  auto points = Json::array();
  for (const auto& point : scaling.points)
    points.push_back({{"ranks", point.ranks},
                      {"step_ms", point.step_ms},
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
                           {"verdict", trend_text(difference)}});
  auto against = Json::array();
  for (const auto& path : report.against) against.push_back(path.string());
  return {{"against", against},
          {"verdict", report.comparison->verdict},
          {"holds_variation_between_runs", report.comparison->between_runs},
          {"differences", differences}};
}

}  // namespace farandole

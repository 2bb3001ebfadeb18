#include "farandole/analyzer/report/report_csv.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <vector>

#include "farandole/analyzer/metrics/node_metrics.h"
#include "farandole/analyzer/report/csv_writer.h"
#include "farandole/analyzer/report/runs_csv.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

std::string path_of(const RunReport& run) {
  return run.path.string();
}

std::string runs_csv(const Report& report) {
  Csv csv({"run", "ranks", "nodes", "steps", "warmup_steps", "window_s", "throughput_samples_per_s",
           "step_median_ms", "step_p95_ms", "overlap", "communication_fraction", "exposed_fraction",
           "wait_fraction", "parallel", "load_balance", "communication", "serialisation", "transfer",
           "verdict"});
  for (const auto& run : report.runs) {
    const auto& metrics = run.metrics;
    const auto& times = metrics.window.step_ms;
    csv.cell(path_of(run)).cell(metrics.size());
    csv.cell(metrics.nodes > 0 ? std::to_string(metrics.nodes) : "").cell(metrics.window.steps.size());
    csv.cell(metrics.window.warmup_steps).seconds(metrics.window.length()).cell(metrics.throughput);
    for (const double part : {0.5, 0.95})
      csv.cell(times.empty() ? Figure::because("no steps") : Figure::known(quantile(times, part)));
    csv.cell(metrics.overlap).cell(metrics.fraction(&RankMetrics::communication));
    csv.cell(metrics.fraction(&RankMetrics::exposed)).cell(metrics.fraction(&RankMetrics::waiting));
    csv.cell(metrics.parallel_efficiency).cell(metrics.load_balance).cell(metrics.communication_efficiency);
    csv.cell(metrics.serialisation).cell(metrics.transfer_efficiency).cell(run.verdict).end();
  }
  return csv.take();
}

std::string ranks_csv(const Report& report) {
  Csv csv({"run", "rank", "host", "compute_s", "communication_s", "overlap_s", "exposed_s", "waiting_s",
           "transfer_s", "other_s", "idle_s", "lateness_median_ms", "lateness_p95_ms", "gpu_kernels_s",
           "gpu_idle_s"});
  for (const auto& run : report.runs)
    for (const auto& rank : run.metrics.ranks) {
      csv.cell(path_of(run)).cell(rank.rank).cell(rank.host);
      for (const auto part :
           {&RankMetrics::compute, &RankMetrics::communication, &RankMetrics::overlap, &RankMetrics::exposed})
        csv.cell(run.metrics.seconds(rank, part));
      for (const auto ns : {rank.waiting, rank.transfer})
        csv.cell(run.metrics.no_waiting.empty() && rank.clock_known
                     ? Figure::known(static_cast<double>(ns) * 1e-9)
                     : Figure::because(run.metrics.no_waiting));
      for (const auto part : {&RankMetrics::other, &RankMetrics::idle})
        csv.cell(run.metrics.seconds(rank, part));
      for (const double part : {0.5, 0.95})
        csv.cell(rank.step_lateness_ms.empty() ? Figure::because("no collectives")
                                               : Figure::known(quantile(rank.step_lateness_ms, part)));
      const auto gpu = [&](std::int64_t GpuTimes::*part) {
        return rank.gpu ? Figure::known(static_cast<double>((*rank.gpu).*part) * 1e-9)
                        : Figure::because("no GPU");
      };
      csv.cell(gpu(&GpuTimes::kernels)).cell(gpu(&GpuTimes::idle)).end();
    }
  return csv.take();
}

std::string phases_csv(const Report& report) {
  Csv csv({"run", "rank", "phase", "seconds", "fraction"});
  for (const auto& run : report.runs)
    for (const auto& rank : run.metrics.ranks)
      for (std::size_t i = 0; i < phase_count; ++i) {
        const auto seconds = run.metrics.phase_seconds(rank, i);
        csv.cell(path_of(run)).cell(rank.rank).cell(std::string(phase_names[i])).cell(seconds);
        csv.cell(seconds.value ? Figure::ratio(*seconds.value * 1e9, run.metrics.window_ns(), "empty")
                               : seconds)
            .end();
      }
  return csv.take();
}

std::string steps_csv(const Report& report) {
  Csv csv({"run", "step", "start_s", "end_s", "longest_ms", "period_ms", "compute_s", "communication_s",
           "overlap_s", "waiting_s", "outlier"});
  for (const auto& run : report.runs) {
    const auto& window = run.metrics.window;
    const auto outliers = window.outliers();
    for (std::size_t i = 0; i < window.steps.size(); ++i) {
      const auto& totals = run.metrics.steps[i];
      csv.cell(path_of(run))
          .cell(window.step_numbers[i])
          .seconds(window.steps[i].start)
          .seconds(window.steps[i].end);
      csv.cell(window.step_ms[i]).cell(window.periods_ms[i]);
      const auto of_compute = [&](double ns) {
        return run.metrics.no_compute.empty() ? Figure::known(ns * 1e-9)
                                              : Figure::because(run.metrics.no_compute);
      };
      csv.cell(of_compute(totals.compute)).cell(totals.communication * 1e-9);
      csv.cell(of_compute(totals.overlap)).cell(totals.waiting * 1e-9);
      csv.cell(std::binary_search(outliers.begin(), outliers.end(), i) ? 1 : 0).end();
    }
  }
  return csv.take();
}

std::string lateness_csv(const Report& report) {
  Csv csv({"run", "step", "rank", "lateness_ms"});
  for (const auto& run : report.runs)
    for (const auto& rank : run.metrics.ranks)
      for (std::size_t i = 0; i < rank.step_lateness_ms.size(); ++i)
        csv.cell(path_of(run))
            .cell(run.metrics.window.step_numbers[rank.lateness_steps[i]])
            .cell(rank.rank)
            .cell(rank.step_lateness_ms[i])
            .end();
  return csv.take();
}

std::string collectives_csv(const Report& report) {
  Csv csv({"run", "name", "operation", "count", "bytes", "median_us", "wait_us", "transfer_us",
           "transfer_p10_us", "transfer_p90_us", "algbw_gbps", "busbw_gbps", "of_proven_bandwidth", "total_s",
           "last_rank", "last_share", "late_us"});
  for (const auto& run : report.runs)
    for (const auto& row : run.metrics.collectives)
      csv.cell(path_of(run))
          .cell(row.name)
          .cell(row.operation)
          .cell(row.count)
          .cell(row.bytes)
          .cell(row.median_us)
          .cell(row.wait_us)
          .cell(row.known_transfer_us())
          .cell(row.transfer_p10_us)
          .cell(row.transfer_p90_us)
          .cell(row.algbw_gbps)
          .cell(row.busbw_gbps)
          .cell(row.of_proven)
          .cell(row.total_s)
          .cell(row.last_rank ? std::to_string(*row.last_rank) : std::string())
          .cell(row.last_share)
          .cell(row.late_us)
          .end();
  return csv.take();
}

std::string losses_csv(const Report& report) {
  Csv csv({"run", "loss", "fraction", "hours"});
  for (const auto& run : report.runs)
    for (const auto& loss : run.losses)
      csv.cell(path_of(run)).cell(loss.name).cell(loss.fraction).cell(loss.hours).end();
  return csv.take();
}

std::string wait_causes_csv(const Report& report) {
  Csv csv({"run", "rank", "phase", "seconds"});
  for (const auto& run : report.runs)
    for (const auto& cause : run.wait_causes)
      csv.cell(path_of(run))
          .cell(run.metrics.ranks[cause.rank_index].rank)
          .cell(cause.phase)
          .cell(cause.seconds)
          .end();
  return csv.take();
}

std::string critical_path_csv(const Report& report) {
  Csv csv({"run", "rank", "phase", "seconds"});
  for (const auto& run : report.runs) {
    if (!run.critical_path.unknown.empty()) continue;
    for (const auto& path : run.critical_path.ranks) {
      const auto rank = run.metrics.ranks[path.rank_index].rank;
      for (std::size_t i = 0; i < phase_count; ++i)
        csv.cell(path_of(run)).cell(rank).cell(std::string(phase_names[i])).seconds(path.phases[i]).end();
      csv.cell(path_of(run)).cell(rank).cell(std::string("idle")).seconds(path.idle).end();
    }
    csv.cell(path_of(run))
        .cell(std::string())
        .cell(std::string("transfer"))
        .seconds(run.critical_path.transfer)
        .end();
  }
  return csv.take();
}

std::string stragglers_csv(const Report& report) {
  Csv csv({"run", "rank", "host", "pattern", "phase", "lateness_ms", "late_steps"});
  for (const auto& run : report.runs)
    for (const auto& late : run.stragglers) {
      const auto& rank = run.metrics.ranks[late.rank_index];
      csv.cell(path_of(run))
          .cell(rank.rank)
          .cell(rank.host)
          .cell(std::string(name_of(late.pattern)))
          .cell(late.phase)
          .cell(late.lateness_ms)
          .cell(late.late_steps)
          .end();
    }
  return csv.take();
}

std::string findings_csv(const Report& report) {
  Csv csv({"run", "title", "evidence", "gain_percent", "change"});
  for (const auto& run : report.runs)
    for (const auto& finding : run.findings)
      csv.cell(path_of(run))
          .cell(finding.title)
          .cell(finding.evidence)
          .cell(finding.gain_percent)
          .cell(finding.change)
          .end();
  return csv.take();
}

std::string nodes_csv(const Report& report) {
  Csv csv({"run", "node", "ranks", "compute_s", "communication_s", "overlap", "exposed_s", "waiting_s",
           "other_s", "idle_s", "lateness_median_ms", "lateness_p95_ms", "gpu_utilization"});
  for (const auto& run : report.runs)
    for (const auto& node : node_metrics(run.metrics)) {
      csv.cell(path_of(run)).cell(node.host).cell(node.ranks).cell(node.compute_s).cell(node.communication_s);
      csv.cell(node.overlap).cell(node.exposed_s).cell(node.wait_s).cell(node.other_s).cell(node.idle_s);
      csv.cell(node.lateness_median_ms).cell(node.lateness_p95_ms);
      csv.cell(node.gpu ? Figure::known(node.gpu->utilization) : Figure{}).end();
    }
  return csv.take();
}

std::string gpu_csv(const Report& report) {
  Csv csv({"run", "rank", "host", "window_s", "kernels_s", "compute_s", "communication_only_s",
           "memcpy_only_s", "idle_s"});
  for (const auto& run : report.runs)
    for (const auto& rank : run.metrics.ranks) {
      if (!rank.gpu) continue;
      csv.cell(path_of(run)).cell(rank.rank).cell(rank.host);
      for (const auto ns : {rank.gpu->window, rank.gpu->kernels, rank.gpu->compute,
                            rank.gpu->communication_only, rank.gpu->memcpy_only, rank.gpu->idle})
        csv.seconds(ns);
      csv.end();
    }
  return csv.take();
}

std::string mpi_calls_csv(const Report& report) {
  Csv csv({"run", "function", "count", "bytes", "median_us", "total_s"});
  for (const auto& run : report.runs)
    for (const auto& row : run.metrics.mpi_calls)
      csv.cell(path_of(run))
          .cell(row.function)
          .cell(row.count)
          .cell(row.bytes)
          .cell(row.median_us)
          .cell(row.total_s)
          .end();
  return csv.take();
}

}  // namespace

std::string report_csv(const Report& report, std::string_view table) {
  static const std::map<std::string, std::string (*)(const Report&), std::less<>> tables = {
      {"runs", runs_csv},
      {"ranks", ranks_csv},
      {"phases", phases_csv},
      {"steps", steps_csv},
      {"lateness", lateness_csv},
      {"collectives", collectives_csv},
      {"losses", losses_csv},
      {"wait-causes", wait_causes_csv},
      {"critical-path", critical_path_csv},
      {"stragglers", stragglers_csv},
      {"findings", findings_csv},
      {"nodes", nodes_csv},
      {"gpu", gpu_csv},
      {"mpi-calls", mpi_calls_csv},
      {"scaling", scaling_csv},
      {"scaling-fits", scaling_fits_csv},
      {"comparison", comparison_csv},
      {"what-if", what_if_csv},
      {"validation", validation_csv}};
  const auto found = tables.find(table);
  if (found != tables.end()) return found->second(report);
  std::vector<std::string> names;
  for (const auto& [name, function] : tables) names.push_back(name);
  throw UserError(fmt::format("--table {} is not known; use one of {}", table, fmt::join(names, ", ")));
}

}  // namespace farandole

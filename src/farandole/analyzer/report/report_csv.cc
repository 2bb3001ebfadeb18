#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <vector>

#include "farandole/analyzer/metrics/node_metrics.h"
#include "farandole/analyzer/report/csv_writer.h"
#include "farandole/analyzer/report/report_formats.h"
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
    const auto time = [&](double part) {
      return times.empty() ? Figure::because("no steps") : Figure::known(quantile(times, part));
    };
    csv.row(path_of(run), metrics.size(), metrics.nodes > 0 ? std::to_string(metrics.nodes) : "",
            metrics.window.steps.size(), metrics.window.warmup_steps, seconds_of(metrics.window.length()),
            metrics.throughput, time(0.5), time(0.95), metrics.overlap,
            metrics.fraction(&RankMetrics::communication), metrics.fraction(&RankMetrics::exposed),
            metrics.fraction(&RankMetrics::waiting), metrics.parallel_efficiency, metrics.load_balance,
            metrics.communication_efficiency, metrics.serialisation, metrics.transfer_efficiency,
            run.verdict);
  }
  return csv.take();
}

std::string ranks_csv(const Report& report) {
  Csv csv({"run", "rank", "host", "compute_s", "communication_s", "overlap_s", "exposed_s", "waiting_s",
           "transfer_s", "other_s", "idle_s", "lateness_median_ms", "lateness_p95_ms", "gpu_kernels_s",
           "gpu_idle_s"});
  for (const auto& run : report.runs)
    for (const auto& rank : run.metrics.ranks) {
      const auto part = [&](std::int64_t RankMetrics::*ns) { return run.metrics.seconds(rank, ns); };
      const auto across = [&](std::int64_t ns) {
        return run.metrics.no_waiting.empty() && rank.clock_known ? Figure::known(seconds_of(ns))
                                                                  : Figure::because(run.metrics.no_waiting);
      };
      const auto lateness = [&](double of) {
        return rank.step_lateness_ms.empty() ? Figure::because("no collectives")
                                             : Figure::known(quantile(rank.step_lateness_ms, of));
      };
      const auto gpu = [&](std::int64_t GpuTimes::*ns) {
        return rank.gpu ? Figure::known(seconds_of((*rank.gpu).*ns)) : Figure::because("no GPU");
      };
      csv.row(path_of(run), rank.rank, rank.host, part(&RankMetrics::compute),
              part(&RankMetrics::communication), part(&RankMetrics::overlap), part(&RankMetrics::exposed),
              across(rank.waiting), across(rank.transfer), part(&RankMetrics::other),
              part(&RankMetrics::idle), lateness(0.5), lateness(0.95), gpu(&GpuTimes::kernels),
              gpu(&GpuTimes::idle));
    }
  return csv.take();
}

std::string phases_csv(const Report& report) {
  Csv csv({"run", "rank", "phase", "seconds", "fraction"});
  for (const auto& run : report.runs)
    for (const auto& rank : run.metrics.ranks)
      for (std::size_t i = 0; i < phase_count; ++i) {
        const auto seconds = run.metrics.phase_seconds(rank, i);
        csv.row(
            path_of(run), rank.rank, phase_names[i], seconds,
            seconds.value ? Figure::ratio(*seconds.value * 1e9, run.metrics.window_ns(), "empty") : seconds);
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
      const auto of_compute = [&](double ns) {
        return run.metrics.no_compute.empty() ? Figure::known(ns * 1e-9)
                                              : Figure::because(run.metrics.no_compute);
      };
      csv.row(path_of(run), window.step_numbers[i], seconds_of(window.steps[i].start),
              seconds_of(window.steps[i].end), window.step_ms[i], window.periods_ms[i],
              of_compute(totals.compute), totals.communication * 1e-9, of_compute(totals.overlap),
              totals.waiting * 1e-9, std::binary_search(outliers.begin(), outliers.end(), i) ? 1 : 0);
    }
  }
  return csv.take();
}

std::string lateness_csv(const Report& report) {
  Csv csv({"run", "step", "rank", "lateness_ms"});
  for (const auto& run : report.runs)
    for (const auto& rank : run.metrics.ranks)
      for (std::size_t i = 0; i < rank.step_lateness_ms.size(); ++i)
        csv.row(path_of(run), run.metrics.window.step_numbers[rank.lateness_steps[i]], rank.rank,
                rank.step_lateness_ms[i]);
  return csv.take();
}

std::string collectives_csv(const Report& report) {
  Csv csv({"run", "name", "operation", "count", "bytes", "median_us", "wait_us", "transfer_us",
           "transfer_p10_us", "transfer_p90_us", "algbw_gbps", "busbw_gbps", "of_proven_bandwidth", "total_s",
           "last_rank", "last_share", "late_us"});
  for (const auto& run : report.runs)
    for (const auto& row : run.metrics.collectives)
      csv.row(path_of(run), row.name, row.operation, row.count, row.bytes, row.median_us, row.wait_us,
              row.known_transfer_us(), row.transfer_p10_us, row.transfer_p90_us, row.algbw_gbps,
              row.busbw_gbps, row.of_proven, row.total_s,
              row.last_rank ? std::to_string(*row.last_rank) : std::string(), row.last_share, row.late_us);
  return csv.take();
}

std::string losses_csv(const Report& report) {
  Csv csv({"run", "loss", "fraction", "hours"});
  for (const auto& run : report.runs)
    for (const auto& loss : run.losses) csv.row(path_of(run), loss.name, loss.fraction, loss.hours);
  return csv.take();
}

std::string wait_causes_csv(const Report& report) {
  Csv csv({"run", "rank", "phase", "seconds"});
  for (const auto& run : report.runs)
    for (const auto& cause : run.wait_causes)
      csv.row(path_of(run), run.metrics.ranks[cause.rank_index].rank, cause.phase, cause.seconds);
  return csv.take();
}

std::string critical_path_csv(const Report& report) {
  Csv csv({"run", "rank", "phase", "seconds"});
  for (const auto& run : report.runs) {
    if (!run.critical_path.unknown.empty()) continue;
    for (const auto& path : run.critical_path.ranks) {
      const auto rank = run.metrics.ranks[path.rank_index].rank;
      for (std::size_t i = 0; i < phase_count; ++i)
        csv.row(path_of(run), rank, phase_names[i], seconds_of(path.phases[i]));
      csv.row(path_of(run), rank, "idle", seconds_of(path.idle));
    }
    csv.row(path_of(run), "", "transfer", seconds_of(run.critical_path.transfer));
  }
  return csv.take();
}

std::string stragglers_csv(const Report& report) {
  Csv csv({"run", "rank", "host", "pattern", "phase", "lateness_ms", "late_steps"});
  for (const auto& run : report.runs)
    for (const auto& late : run.stragglers) {
      const auto& rank = run.metrics.ranks[late.rank_index];
      csv.row(path_of(run), rank.rank, rank.host, name_of(late.pattern), late.phase, late.lateness_ms,
              late.late_steps);
    }
  return csv.take();
}

std::string findings_csv(const Report& report) {
  Csv csv({"run", "title", "evidence", "gain_percent", "change"});
  for (const auto& run : report.runs)
    for (const auto& finding : run.findings)
      csv.row(path_of(run), finding.title, finding.evidence, finding.gain_percent, finding.change);
  return csv.take();
}

std::string nodes_csv(const Report& report) {
  Csv csv({"run", "node", "ranks", "compute_s", "communication_s", "overlap", "exposed_s", "waiting_s",
           "other_s", "idle_s", "lateness_median_ms", "lateness_p95_ms", "gpu_utilization"});
  for (const auto& run : report.runs)
    for (const auto& node : node_metrics(run.metrics))
      csv.row(path_of(run), node.host, node.ranks, node.compute_s, node.communication_s, node.overlap,
              node.exposed_s, node.wait_s, node.other_s, node.idle_s, node.lateness_median_ms,
              node.lateness_p95_ms, node.gpu ? Figure::known(node.gpu->utilization) : Figure{});
  return csv.take();
}

std::string gpu_csv(const Report& report) {
  Csv csv({"run", "rank", "host", "window_s", "kernels_s", "compute_s", "communication_only_s",
           "memcpy_only_s", "idle_s"});
  for (const auto& run : report.runs)
    for (const auto& rank : run.metrics.ranks) {
      if (!rank.gpu) continue;
      const auto& gpu = *rank.gpu;
      csv.row(path_of(run), rank.rank, rank.host, seconds_of(gpu.window), seconds_of(gpu.kernels),
              seconds_of(gpu.compute), seconds_of(gpu.communication_only), seconds_of(gpu.memcpy_only),
              seconds_of(gpu.idle));
    }
  return csv.take();
}

std::string mpi_calls_csv(const Report& report) {
  Csv csv({"run", "function", "count", "bytes", "median_us", "total_s"});
  for (const auto& run : report.runs)
    for (const auto& row : run.metrics.mpi_calls)
      csv.row(path_of(run), row.function, row.count, row.bytes, row.median_us, row.total_s);
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

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include "farandole/analyzer/report/nodes_text.h"
#include "farandole/analyzer/report/report_formats.h"
#include "farandole/analyzer/report/runs_text.h"
#include "farandole/analyzer/report/text_table.h"
#include "farandole/analyzer/report/units.h"

namespace farandole {
namespace {

constexpr std::size_t max_rank_rows = 16;
constexpr std::size_t max_collective_rows = 8;
constexpr std::size_t max_path_ranks = 3;
constexpr std::size_t max_outliers = 5;
constexpr double bar_columns = 26;

std::string padded(std::string text, std::size_t columns) {
  text.append(columns - std::min(columns, width_of(text)), ' ');
  return text;
}

std::string bandwidth(const Figure& figure) {
  if (!figure.value) return "–";
  return *figure.value < 1e5 ? fmt::format("{:.2f}", *figure.value) : fmt::format("{:.1e}", *figure.value);
}

class RunText {
 public:
  RunText(const RunReport& run, const Style& style)
      : run_(run), metrics_(run.metrics), style_(style), shown_(choose_ranks()) {}

  std::string text() {
    text_ = style_.bold(wrapped(run_.verdict, 0)) + "\n";
    facts();
    waterfall();
    phases();
    communication();
    gpu();
    lateness();
    text_ += nodes_text(metrics_, style_);
    path();
    findings();
    if (!run_.what_if.empty()) text_ += what_if_text(*run_.replay, run_.what_if, style_);
    notes();
    return std::move(text_);
  }

 private:
  // Returns all ranks, or, if there are many, those with the largest lateness.
  std::vector<const RankMetrics*> choose_ranks() const {
    std::vector<const RankMetrics*> ranks;
    for (const auto& rank : metrics_.ranks) ranks.push_back(&rank);
    if (ranks.size() <= max_rank_rows) return ranks;
    const auto late = [](const RankMetrics* rank) {
      return rank->step_lateness_ms.empty() ? 0 : quantile(rank->step_lateness_ms, 0.5);
    };
    std::stable_sort(ranks.begin(), ranks.end(), [&](auto* a, auto* b) { return late(a) > late(b); });
    ranks.resize(max_rank_rows / 2);
    std::sort(ranks.begin(), ranks.end(), [](auto* a, auto* b) { return a->rank < b->rank; });
    return ranks;
  }

  void section(const std::string& title, const std::string& detail = "") {
    text_ += "\n" + style_.bold(title) + (detail.empty() ? "" : "  " + style_.dim(detail)) + "\n";
  }
  void line(const std::string& name, const std::string& value) {
    text_ += fmt::format("  {:<11} {}\n", name, wrapped(value, 14));
  }
  void more_ranks() {
    if (shown_.size() < metrics_.ranks.size())
      text_ += style_.dim(fmt::format("  the {} latest of {} ranks; --format json lists all\n", shown_.size(),
                                      metrics_.ranks.size()));
  }
  static std::string host_of(const RankMetrics& rank) {
    return rank.host.empty() ? "?" : shortened(rank.host, 16);
  }

  void facts() {
    const auto& facts = run_.facts;
    section("Run", shortened(run_.path.string(), 90));
    std::string what = facts.program.value_or("");
    if (facts.parameters)
      what += fmt::format("{}{} parameters", what.empty() ? "" : " · ",
                          with_thousands(static_cast<double>(*facts.parameters)));
    if (facts.device) what += (what.empty() ? "" : " · ") + *facts.device;
    if (!what.empty()) line("program", what);
    line("ranks",
         fmt::format("{}{}{}", metrics_.size(),
                     metrics_.is_sample() ? fmt::format(", {} of them measured,", metrics_.ranks.size()) : "",
                     metrics_.nodes > 0
                         ? fmt::format(" on {} node{}", metrics_.nodes, metrics_.nodes > 1 ? "s" : "")
                         : ""));
    if (facts.started || facts.ended)
      line("time", facts.started.value_or("?") + " to " + facts.ended.value_or("?") +
                       (facts.exit_code ? fmt::format(", exit code {}", *facts.exit_code) : "") +
                       (facts.restarts.value_or(0) > 0 ? fmt::format(", {} restarts", *facts.restarts) : ""));
    steps();
    line("efficiency", fmt::format("parallel {} = load balance {} × communication {}",
                                   percent(metrics_.parallel_efficiency), percent(metrics_.load_balance),
                                   percent(metrics_.communication_efficiency)));
    if (metrics_.serialisation.value)
      line("", fmt::format("communication {} = serialisation {} × transfer {}",
                           percent(metrics_.communication_efficiency), percent(metrics_.serialisation),
                           percent(metrics_.transfer_efficiency)));
  }

  void steps() {
    const auto& window = metrics_.window;
    const double seconds = metrics_.window_ns() * 1e-9;
    if (window.step_ms.empty()) {
      line("window", fmt::format("{:.3f} s: {}", seconds, window.no_steps));
    } else {
      line("window", fmt::format("{:.3f} s: {} step{}, {} warm-up step{} left out", seconds,
                                 with_thousands(static_cast<double>(window.steps.size())),
                                 window.steps.size() == 1 ? "" : "s", window.warmup_steps,
                                 window.warmup_steps == 1 ? "" : "s"));
      const auto interval = median_interval(window.step_ms);
      line("step", fmt::format("median {:.2f} ms ({}), p95 {:.2f} ms", quantile(window.step_ms, 0.5),
                               interval ? fmt::format("95 %: {:.2f} to {:.2f}", interval->low, interval->high)
                                        : "too few steps for an interval",
                               quantile(window.step_ms, 0.95)));
      outliers();
    }
    if (metrics_.throughput.value)
      line("throughput",
           fmt::format("{} samples/s at a global batch of {}", with_thousands(*metrics_.throughput.value, 1),
                       with_thousands(*run_.facts.global_batch)));
    else
      line("throughput", "unknown: " + metrics_.throughput.unknown);
  }

  void outliers() {
    const auto& window = metrics_.window;
    const auto found = window.outliers();
    if (found.empty()) return;
    std::vector<std::string> named;
    for (const auto index : found)
      if (named.size() < max_outliers)
        named.push_back(
            fmt::format("{} ({})", window.step_numbers[index], time_text(1e3 * window.step_ms[index])));
    line("outliers",
         fmt::format(
             "step{} {}{}", found.size() == 1 ? "" : "s", fmt::join(named, ", "),
             found.size() > named.size() ? fmt::format(" and {} more", found.size() - named.size()) : ""));
  }

  // Writes each loss and what remains of 100 % below it.
  void waterfall() {
    if (metrics_.window.length() <= 0) return;
    section("Where the time goes", "from 100 % of the ranks' time down to useful compute");
    if (!metrics_.no_compute.empty()) {
      text_ += "  unknown: " + wrapped(metrics_.no_compute, 2) + "\n";
      return;
    }
    double left = 1;
    const auto row = [&](const std::string& name, double fraction, const std::string& lost, double from) {
      const auto begin = static_cast<std::size_t>(std::max(0L, std::lround(from * bar_columns)));
      const auto length = static_cast<std::size_t>(std::lround((from + fraction) * bar_columns)) - begin;
      std::string bar(begin, ' ');
      for (std::size_t i = 0; i < std::max<std::size_t>(length, 1); ++i) bar += "█";
      text_ += fmt::format("  {}{:>6} % {:>18}  {}\n", padded(shortened(name, 40), 40), percent(fraction),
                           lost, lost.empty() ? bar : style_.dim(bar));
    };
    double unnamed = 0;
    for (const auto& loss : run_.losses) {
      if (loss.fraction < 0.0005) {
        unnamed += loss.fraction;
        continue;
      }
      left -= loss.fraction;
      row(loss.name, loss.fraction, rank_time_text(loss.hours, metrics_), left);
    }
    row("useful compute", std::max(0.0, left - unnamed), "", 0);
  }

  void phases() {
    if (metrics_.window.length() <= 0 || !metrics_.has_phases()) return;
    const auto cell = [](const Figure& fraction) {
      return fraction.value ? percent(*fraction.value) : std::string("–");
    };
    section("Phases by rank", "training thread, % of the window");
    std::vector<std::string> header = {"rank", "host"};
    header.insert(header.end(), phase_names.begin(), phase_names.end());
    TextTable table(header, 2);
    for (const auto* rank : shown_) {
      std::vector<std::string> cells = {std::to_string(rank->rank), host_of(*rank)};
      for (std::size_t i = 0; i < phase_count; ++i) {
        auto part = metrics_.phase_seconds(*rank, i);
        if (part.value) *part.value *= 1e9 / metrics_.window_ns();
        cells.push_back(cell(part));
      }
      table.add(std::move(cells));
    }
    if (metrics_.ranks.size() > 1) {
      std::vector<std::string> cells = {"all", ""};
      for (std::size_t i = 0; i < phase_count; ++i) cells.push_back(cell(metrics_.phase_fraction(i)));
      table.add(std::move(cells));
    }
    text_ += table.text(style_);
    more_ranks();
  }

  void communication() {
    section("Communication");
    const auto of_time = [&](std::int64_t RankMetrics::*part) { return percent(metrics_.fraction(part)); };
    const bool split = metrics_.no_waiting.empty();
    const auto parts = split ? fmt::format(": {} waiting for ranks and {} transfer",
                                           of_time(&RankMetrics::waiting), of_time(&RankMetrics::transfer))
                             : "";
    const auto hidden =
        metrics_.overlap.value
            ? fmt::format("{} of it overlaps with compute, so {} of the time is exposed",
                          percent(metrics_.overlap), of_time(&RankMetrics::exposed))
            : fmt::format("the overlap with compute is unknown: {}", metrics_.overlap.unknown);
    const auto summary =
        fmt::format("{} of the time{}; {}", of_time(&RankMetrics::communication), parts, hidden);
    text_ += "  " + wrapped(summary, 2) + "\n";
    if (!split) text_ += "  " + wrapped("Waiting is unknown: " + metrics_.no_waiting + ".", 2) + "\n";
    collectives();
    mpi_calls();
  }

  void collectives() {
    if (metrics_.collectives.empty()) return;
    // Of runs with steps, lateness stands in a table of its own.
    const bool with_last = !metrics_.window.no_steps.empty();
    std::vector<std::string> header = {"collective", "operation", "count", "size", "median",
                                       "mean wait",  "transfer",  "algbw", "busbw"};
    if (with_last) header.emplace_back("last");
    TextTable table(header, 2);
    for (std::size_t i = 0; i < std::min(metrics_.collectives.size(), max_collective_rows); ++i) {
      const auto& row = metrics_.collectives[i];
      const auto time = [](const Figure& us) { return us.value ? time_text(*us.value) : "–"; };
      std::vector<std::string> cells = {shortened(row.name, with_last ? 16 : 22),
                                        shortened(row.operation, 14),
                                        std::to_string(row.count),
                                        row.bytes.value.value_or(0) > 0 ? size_text(*row.bytes.value) : "–",
                                        time_text(row.median_us),
                                        time(row.wait_us),
                                        time(row.known_transfer_us()),
                                        bandwidth(row.algbw_gbps),
                                        bandwidth(row.busbw_gbps)};
      if (with_last) cells.push_back(row.last_rank ? fmt::format("rank {}", *row.last_rank) : "–");
      table.add(cells);
    }
    text_ += table.text(style_);
    if (metrics_.collectives.size() > max_collective_rows)
      text_ += style_.dim(fmt::format("  and {} more; --format json lists all\n",
                                      metrics_.collectives.size() - max_collective_rows));
    text_ += style_.dim(
        metrics_.no_waiting.empty()
            ? "  algbw, busbw: GB/s after the last rank's arrival, as defined by nccl-tests\n"
            : "  algbw, busbw: GB/s as defined by nccl-tests; lower bounds, because the median includes "
              "waiting\n");
  }

  void mpi_calls() {
    if (metrics_.mpi_calls.empty()) return;
    TextTable table({"MPI calls of the program", "calls", "total size", "median", "of the ranks' time"}, 1);
    for (std::size_t i = 0; i < std::min(metrics_.mpi_calls.size(), max_collective_rows); ++i) {
      const auto& row = metrics_.mpi_calls[i];
      table.add({shortened(row.function, 28), std::to_string(row.count), size_text(row.bytes),
                 time_text(row.median_us),
                 percent(Figure::ratio(row.total_s * 1e9 / static_cast<double>(metrics_.ranks.size()),
                                       metrics_.window_ns(), "the window is empty"))});
    }
    text_ += table.text(style_);
    if (metrics_.mpi_calls.size() > max_collective_rows)
      text_ += style_.dim(fmt::format("  and {} more; --format json lists all\n",
                                      metrics_.mpi_calls.size() - max_collective_rows));
  }

  void gpu() {
    section("GPU", metrics_.no_gpu.empty() ? "% of the window" : "");
    if (!metrics_.no_gpu.empty()) {
      text_ += "  " + wrapped(metrics_.no_gpu, 2) + "\n";
      return;
    }
    TextTable table({"rank", "host", "utilization", "compute", "communication only", "copies only", "idle"},
                    2);
    for (const auto* rank : shown_) {
      if (!rank->gpu) continue;
      const auto cell = [&](std::int64_t ns) {
        return percent(static_cast<double>(ns) /
                       static_cast<double>(std::max<std::int64_t>(1, rank->gpu->window)));
      };
      table.add({std::to_string(rank->rank), host_of(*rank), cell(rank->gpu->kernels),
                 cell(rank->gpu->compute), cell(rank->gpu->communication_only), cell(rank->gpu->memcpy_only),
                 cell(rank->gpu->idle)});
    }
    text_ += table.text(style_);
    more_ranks();
    if (const auto phases = gpu_phases(); !phases.empty())
      text_ += style_.dim("  kernels and copies by the phase that launched them: " + phases + "\n");
  }

  // For the windows of all ranks together.
  std::string gpu_phases() const {
    std::vector<std::string> parts;
    if (const auto gpu = gpu_shares(metrics_))
      for (std::size_t i = 0; i < phase_count; ++i)
        if (gpu->by_phase[i] > 0)
          parts.push_back(fmt::format("{} {}", phase_names[i], percent(gpu->by_phase[i])));
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  void lateness() {
    if (metrics_.ranks.size() < 2) return;
    section("Lateness by rank", "latest arrival at a collective in each step; the clock error is " +
                                    time_text(1e3 * metrics_.clock_floor_ms));
    TextTable table({"rank", "host", "median", "p95", "pattern", "delayed in"}, 2);
    for (const auto* rank : shown_) {
      std::string pattern = "–";
      std::string phase = "–";
      for (const auto& straggler : run_.stragglers) {
        if (&metrics_.ranks[straggler.rank_index] != rank) continue;
        pattern = name_of(straggler.pattern);
        phase = straggler.phase.empty() ? "unknown" : straggler.phase;
      }
      const bool known = !rank->step_lateness_ms.empty();
      const auto cell = [&](double q) {
        return known ? time_text(1e3 * quantile(rank->step_lateness_ms, q)) : "unknown";
      };
      table.add({std::to_string(rank->rank), host_of(*rank), cell(0.5), cell(0.95), pattern, phase});
    }
    text_ += table.text(style_);
    more_ranks();
  }

  void path() {
    const auto& path = run_.critical_path;
    if (metrics_.ranks.size() < 2 || metrics_.window_ns() <= 0 || path.ranks.empty()) return;
    section("Critical path", "the chain of work that determines the run time");
    const auto part = [&](double ns) { return percent(ns / metrics_.window_ns()) + " %"; };
    std::vector<std::string> parts;
    for (const auto& of_rank : path.ranks) {
      if (parts.size() == max_path_ranks) break;
      const auto most = std::max_element(of_rank.phases.begin(), of_rank.phases.end());
      parts.push_back(fmt::format("rank {} {} (most of it {})", metrics_.ranks[of_rank.rank_index].rank,
                                  part(static_cast<double>(of_rank.total())),
                                  phase_names[static_cast<std::size_t>(most - of_rank.phases.begin())]));
    }
    if (path.ranks.size() > parts.size())
      parts.push_back(fmt::format("{} more rank{}", path.ranks.size() - parts.size(),
                                  path.ranks.size() - parts.size() == 1 ? "" : "s"));
    parts.push_back("transfer " + part(static_cast<double>(path.transfer)));
    const auto summary =
        fmt::format("{}; the path changes ranks {}", fmt::join(parts, ", "), times_text(path.changes));
    text_ += "  " + wrapped(summary, 2) + "\n";
  }

  void findings() {
    if (run_.findings.empty()) return;
    section("Findings", "gain: if the whole loss were removed");
    int number = 0;
    for (const auto& finding : run_.findings) {
      text_ += fmt::format("  {}. {} (gain up to {:.1f} %)\n", ++number,
                           style_.bold(shortened(finding.title, 70)), finding.gain_percent);
      text_ += "     " + wrapped(finding.evidence + ". Advice: " + finding.change + ".", 5) + "\n";
    }
  }

  void notes() {
    if (metrics_.warnings.empty()) return;
    section("Notes");
    for (const auto& warning : metrics_.warnings)
      text_ += "  " + style_.bad("!") + " " + wrapped(warning, 4) + "\n";
  }

  const RunReport& run_;
  const RunMetrics& metrics_;
  const Style& style_;
  std::vector<const RankMetrics*> shown_;
  std::string text_;
};

}  // namespace

std::string report_text(const Report& report, bool colour) {
  const Style style(colour);
  std::string text;
  for (const auto& run : report.runs) text += (text.empty() ? "" : "\n\n") + RunText(run, style).text();
  if (report.runs.size() > 1) text += scaling_text(report.scaling, style);
  for (const auto& validation : report.validations) text += validation_text(validation, style);
  if (report.comparison) text += comparison_text(report, style);
  return text;
}

}  // namespace farandole

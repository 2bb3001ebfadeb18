#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include "farandole/analyzer/report/formatting.h"
#include "farandole/analyzer/report/table.h"

namespace farandole {
namespace {

constexpr std::size_t max_rank_rows = 16;  // Of more ranks, the latest eight are shown.
constexpr std::size_t max_collective_rows = 8;
constexpr std::size_t max_kernel_rows = 10;
constexpr std::size_t max_path_ranks = 3;
constexpr std::size_t max_named_processes = 8;
constexpr std::size_t max_outliers = 5;
constexpr double bar_columns = 26;

std::string padded(std::string text, std::size_t columns) {
  text.append(columns - std::min(columns, width_of(text)), ' ');
  return text;
}

std::string step_text(std::int64_t step) {
  return with_thousands(static_cast<double>(step));
}

std::string scaling_text(const Scaling& scaling, const Style& style) {
  if (!scaling.unknown.empty())
    return "\n" + style.bold("Scaling") + "\n  " + wrapped("unknown: " + scaling.unknown, 2) + "\n";
  const auto detail =
      fmt::format("{}, against {} rank{}",
                  scaling.mode == "weak" ? "weak: same batch per rank" : "strong: same global batch",
                  scaling.base_ranks, scaling.base_ranks == 1 ? "" : "s");
  auto text =
      "\n" + style.bold("Scaling") + "  " + style.dim(detail) + "\n" + text_of(scaling_table(scaling), style);
  for (const auto& sentence :
       {left_out_text(scaling), repeats_text(scaling), slower_compute_text(scaling), forecast_text(scaling)})
    if (!sentence.empty()) text += "  " + wrapped(sentence, 2) + "\n";
  return text;
}

std::string comparison_text(const Report& report, const Style& style) {
  const auto& comparison = *report.comparison;
  return "\n" + style.bold("Against") + "  " + style.dim(shortened(against_text(report), 90)) + "\n  " +
         wrapped(comparison.verdict, 2) + "\n" + text_of(comparison_table(comparison), style);
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
    nodes();
    resources();
    path();
    findings();
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
  void more(std::size_t shown, std::size_t all, const char* what) {
    if (shown < all)
      text_ +=
          style_.dim(fmt::format("  the {} latest of {} {}; --format json lists all\n", shown, all, what));
  }
  void more_ranks() { more(shown_.size(), metrics_.ranks.size(), "ranks"); }

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
    processes();
    if (facts.started || facts.ended)
      line("time",
           facts.started.value_or("?") + " to " + facts.ended.value_or("?") +
               (facts.exit_code ? fmt::format(", exit code {}", *facts.exit_code) : "") +
               (facts.restarts.value_or(0) > 0 ? fmt::format(", {} restart{}; earlier starts are in starts/",
                                                             *facts.restarts, *facts.restarts == 1 ? "" : "s")
                                               : ""));
    steps();
    training();
    if (const auto use = run_.resources.text(); !use.empty()) line("resources", use);
    if (facts.sharding) line("memory", *facts.sharding);
    if (run_.goodput) line("goodput", goodput_text(*run_.goodput));
    line("efficiency", fmt::format("parallel {} = load balance {} × communication {}",
                                   percent(metrics_.parallel_efficiency), percent(metrics_.load_balance),
                                   percent(metrics_.communication_efficiency)));
    if (metrics_.serialisation.value)
      line("", fmt::format("communication {} = serialisation {} × transfer {}",
                           percent(metrics_.communication_efficiency), percent(metrics_.serialisation),
                           percent(metrics_.transfer_efficiency)));
  }

  // Which process or GPU each rank is, if another program's trace has only these.
  void processes() {
    std::vector<std::string> named;
    std::size_t all = 0;
    for (const auto& rank : metrics_.ranks) {
      if (rank.process.empty()) continue;
      if (++all <= max_named_processes) named.push_back(fmt::format("rank {}: {}", rank.rank, rank.process));
    }
    if (all > named.size())
      named.push_back(fmt::format("{} more, which --format json lists", all - named.size()));
    if (all > 0) line("", fmt::format("{}", fmt::join(named, "; ")));
  }

  void steps() {
    const auto& window = metrics_.window;
    const double seconds = metrics_.window_ns() * 1e-9;
    if (window.step_ms.empty()) {
      line("window", fmt::format("{:.3f} s: {}", seconds, window.no_steps));
    } else {
      line("window",
           fmt::format("{:.3f} s: {} step{}{}, {} warm-up step{} left out", seconds,
                       with_thousands(static_cast<double>(window.steps.size())),
                       window.steps.size() == 1 ? "" : "s", window.of_part ? " with recorded GPU work" : "",
                       window.warmup_steps, window.warmup_steps == 1 ? "" : "s"));
      const auto interval = median_interval(window.step_ms);
      line("step", fmt::format("median {:.2f} ms ({}), p95 {:.2f} ms", quantile(window.step_ms, 0.5),
                               interval ? fmt::format("95 %: {:.2f} to {:.2f}", interval->low, interval->high)
                                        : "too few steps for an interval",
                               quantile(window.step_ms, 0.95)));
      outliers();
    }
    if (!metrics_.throughput.value && metrics_.steps_per_s.value)
      line("throughput",
           fmt::format("{} steps/s; samples/s are unknown: {}",
                       with_thousands(*metrics_.steps_per_s.value, 1), metrics_.throughput.unknown));
    else if (metrics_.throughput.value)
      line("throughput",
           fmt::format("{} samples/s at a global batch of {}", with_thousands(*metrics_.throughput.value, 1),
                       with_thousands(*run_.facts.global_batch)));
    else
      line("throughput", "unknown: " + metrics_.throughput.unknown);
    if (const auto rate = model_rate_of(run_))
      line("model", fmt::format("{} ({})", rate->text(), describe_model_flops(run_.facts)));
    std::vector<std::string> owners;
    for (const auto& [owner, mib] : run_.facts.gpu_memory_by_owner_mib)
      owners.push_back(fmt::format("{} {}", shortened(owner, 20), with_thousands(mib)));
    if (!owners.empty()) line("GPU memory", fmt::format("MiB of rank 0's GPU: {}", fmt::join(owners, ", ")));
  }

  // The loss or, if there is none, the last values of other keys; then the last evaluation.
  void training() {
    std::vector<std::string> evaluations, others;
    std::int64_t evaluated = 0;
    for (const auto& [name, curve] : run_.log.curves) {
      if (curve.empty()) continue;
      const auto &lowest = curve.lowest(), &last = curve.points().back();
      const auto value = fmt::format("{} {}", shortened(name, 40), number_text(last.last));
      if (name == "loss")
        line("loss",
             fmt::format("{} at step {}, {} at step {}; lowest {} at step {}", number_text(curve.first()),
                         step_text(curve.points().front().first_step), number_text(last.last),
                         step_text(last.last_step), number_text(lowest.low), step_text(lowest.low_step)));
      else if (name.starts_with("eval_"))
        evaluations.push_back(value.substr(5)), evaluated = std::max(evaluated, last.last_step);
      else if (name != "samples_per_s" && name != "step_ms" && others.size() < 6)
        others.push_back(value);
    }
    if (!evaluations.empty()) {
      evaluations.resize(std::min<std::size_t>(evaluations.size(), 6));
      line("evaluation", fmt::format("step {}: {}", step_text(evaluated), fmt::join(evaluations, ", ")));
    }
    if (!others.empty()) line("metrics", fmt::format("at last: {}", fmt::join(others, ", ")));
    if (const auto text = events_text(run_.log); !text.empty()) line("not finite", text);
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
      text_ += "  " + wrapped("unknown: " + metrics_.no_compute, 2) + "\n";
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
    for (const auto& group : group_losses(run_.losses)) {
      if (group.fraction < 0.0005) {
        unnamed += group.fraction;
        continue;
      }
      left -= group.fraction;
      const bool one = group.parts.size() == 1;
      row(one ? group.parts.front().name : group.name, group.fraction, rank_time_text(group.hours, metrics_),
          left);
      double below = left + group.fraction;
      for (const auto& part : group.parts)
        if (!one && part.fraction >= 0.0005)
          row("  " + cause_in(part), part.fraction, rank_time_text(part.hours, metrics_),
              below -= part.fraction);
    }
    row("useful compute", std::max(0.0, left - unnamed), "", 0);
  }

  void phases() {
    if (metrics_.window.length() <= 0 || !metrics_.has_phases()) return;
    section("Phases by rank", "training thread, % of the window");
    text_ += text_of(phase_table(metrics_, shown_), style_);
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
    if (!metrics_.mpi_calls.empty()) text_ += text_of(mpi_call_table(run_), style_, max_collective_rows);
  }

  void collectives() {
    if (metrics_.collectives.empty()) return;
    text_ += text_of(collective_table(run_), style_, max_collective_rows);
    text_ += style_.dim(
        metrics_.no_waiting.empty()
            ? "  algbw, busbw: GB/s after the last rank's arrival, as defined by nccl-tests\n"
            : "  algbw, busbw: GB/s as defined by nccl-tests; lower bounds, because the median includes "
              "waiting\n");
  }

  void resources() {
    if (run_.resources.ranks.empty()) return;
    section("Resources by rank", "CPU: 100 % is one core; memory: the most");
    text_ += text_of(resource_table(run_), style_);
  }

  void gpu() {
    if (!has_gpu_part(run_)) return;
    section("GPU", metrics_.no_gpu.empty() ? "% of the window" : "");
    if (!metrics_.no_gpu.empty()) {
      text_ += "  " + wrapped(metrics_.no_gpu, 2) + "\n";
      return;
    }
    text_ += text_of(gpu_table(metrics_, shown_), style_);
    more_ranks();
    if (const auto phases = gpu_phases(); !phases.empty())
      text_ += style_.dim("  " + wrapped("kernels and copies by the phase that launched them: " + phases, 2) +
                          "\n");
    if (const auto idle = idle_text(metrics_); !idle.empty()) text_ += style_.dim("  " + idle + "\n");
    if (!metrics_.kernels.empty()) text_ += "\n" + text_of(kernel_table(run_), style_, max_kernel_rows);
    if (!metrics_.copies.empty()) text_ += "\n" + text_of(copy_table(run_), style_);
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
    text_ += text_of(lateness_table(run_, shown_), style_);
    more_ranks();
  }

  void nodes() {
    if (metrics_.nodes < 2 || metrics_.window_ns() <= 0) return;
    section("By node", "mean of its ranks, % of the window; overlap: % of communication");
    auto table = node_table(run_);
    const auto all = table.rows.size();
    if (all > many_nodes) table.rows.erase(table.rows.begin() + many_nodes / 2, table.rows.end());
    text_ += text_of(table, style_);
    more(table.rows.size(), all, "nodes");
  }

  void path() {
    const auto& path = metrics_.critical_path;
    if (metrics_.ranks.size() < 2 || metrics_.window_ns() <= 0 || path.ranks.empty()) return;
    section("Critical path", "the chain of work that determines the run time");
    const auto part = [&](double ns) { return percent(ns / metrics_.window_ns()) + " %"; };
    std::vector<std::string> parts;
    for (const auto& of_rank : path.ranks) {
      if (parts.size() == max_path_ranks) break;
      const auto most = std::max_element(of_rank.phases.begin(), of_rank.phases.end());
      const auto phase = of_rank.idle >= *most
                             ? "idle"
                             : phase_names[static_cast<std::size_t>(most - of_rank.phases.begin())];
      parts.push_back(fmt::format("rank {} {} (most of it {})", metrics_.ranks[of_rank.rank_index].rank,
                                  part(static_cast<double>(of_rank.total())), phase));
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
    section("Findings", "gain: an upper bound, as if the whole loss were removed");
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
  if (report.comparison) text += comparison_text(report, style);
  return text;
}

}  // namespace farandole

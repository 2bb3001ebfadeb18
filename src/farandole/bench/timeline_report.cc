#include "farandole/bench/timeline_report.h"

#include <fmt/format.h>

#include "farandole/base/text/json.h"
#include "farandole/bench/machine_facts.h"

namespace farandole {
namespace {

class Table {
 public:
  Table() { line("", "measured", "target"); }
  void line(std::string_view what, const std::string& value, const std::string& goal = "") {
    text_ += fmt::format("{:<44} {:>26} {:>18}\n", what, value, goal);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string ns(double value) {
  return fmt::format("{:.1f} ns", value);
}

std::string percent(const ShareEstimate& share) {
  const auto value = fmt::format("{:.2f} %", 100 * share.value);
  if (!share.ci95) return value;
  return fmt::format("{} ({:.2f} to {:.2f})", value, 100 * share.ci95->low, 100 * share.ci95->high);
}

void add(Table& table, const SpanCost& span) {
  table.line("two clock reads", ns(span.clock_pair_ns));
  table.line("  at most, for 99.9 % of them", ns(span.clock_pair_p999_ns));
  table.line("span, begin and end", ns(span.span_ns),
             fmt::format("1.5 × = {}", ns(1.5 * span.clock_pair_ns)));
  table.line("  at most, for 99.9 % of the spans", ns(span.span_p999_ns),
             fmt::format("+ 100 = {}", ns(span.clock_pair_ns + 100)));
  table.line("    over all turns instead of their median", ns(span.all_spans_p999_ns));
  table.line("span, not recorded", ns(span.disabled_ns), "1.0 ns");
  table.line("  not recorded, but watched for stalls", ns(span.watched_ns));
}

void add(Table& table, const MergeCost& merge) {
  table.line("merge, events per second and core", fmt::format("{:.2f} M", merge.events_per_s * 1e-6),
             "2.00 M");
  table.line(fmt::format("  on all cores, {} events", merge.events),
             fmt::format("{:.2f} M", merge.wall_events_per_s * 1e-6));
  table.line("  compressed bytes per event",
             fmt::format("{:.1f}", merge.trace_bytes / static_cast<double>(merge.events)));
  if (merge.peak_mib)
    table.line("  memory", fmt::format("{:.0f} MiB", *merge.peak_mib), "64 MiB + 1 per rank");
}

void add(Table& table, const KillLoss& loss) {
  table.line(fmt::format("longest loss of ended events, {} SIGKILLs", loss.kills),
             fmt::format("{:.1f} µs", loss.most_lost_us), "1000.0 µs");
  table.line("  complete traces without damage", fmt::format("{}", loss.sound_traces),
             fmt::format("{}", loss.kills));
}

void add(Table& table, const MpiCallCost& cost) {
  table.line("MPI call of a program without --trace-mpi", ns(cost.plain_ns));
  table.line("  with --trace-mpi, not recorded", ns(cost.passed_ns));
  table.line("  with --trace-mpi, recorded", ns(cost.recorded_ns));
}

void add(Table& table, const TrainingOverhead& training, double span_ns) {
  table.line(fmt::format("{} step on {} ranks, median", training.model, training.ranks),
             fmt::format("{:.2f} ms", training.step_ms));
  table.line("  timeline overhead, wall time", percent(added_share(training.timeline.time)),
             training.model == "gpt" ? "0.50 %" : "1.00 %");
  table.line("    processor time", percent(added_share(training.timeline.processor_time)));
  table.line(fmt::format("    {:.0f} events per step, {} each", training.events_a_step, ns(span_ns)),
             fmt::format("{:.4f} %", 100e-6 * training.events_a_step * span_ns / training.step_ms));
  table.line("  PyTorch's profiler overhead, wall time", percent(added_share(training.profiler.time)));
  table.line("    processor time", percent(added_share(training.profiler.processor_time)));
  table.line("  timeline overhead relative to it",
             percent(ratio_of_added(training.timeline.processor_time, training.profiler.processor_time)),
             "10.00 %");
}

Json to_json(const ShareEstimate& estimate) {
  return {{"value", estimate.value},
          {"ci95", estimate.ci95 ? Json({estimate.ci95->low, estimate.ci95->high}) : Json()}};
}

Json to_json(const Added& added) {
  return {{"of_time", to_json(added_share(added.time))},
          {"of_processor_time", to_json(added_share(added.processor_time))},
          {"of_time_by_round", added.time},
          {"of_processor_time_by_round", added.processor_time}};
}

Json to_json(const TrainingOverhead& training) {
  return {{"model", training.model},
          {"ranks", training.ranks},
          {"step_ms", training.step_ms},
          {"steps_a_block", training.steps_a_block},
          {"events_a_step", training.events_a_step},
          {"timeline_adds", to_json(training.timeline)},
          {"profiler_adds", to_json(training.profiler)},
          {"timeline_of_profiler",
           to_json(ratio_of_added(training.timeline.processor_time, training.profiler.processor_time))}};
}

}  // namespace

std::string to_text(const TimelineReport& report) {
  Table table;
  add(table, report.span);
  add(table, report.merge);
  table.line("counters, once a second", fmt::format("{:.0f} µs", report.counters_us));
  add(table, report.killed);
  if (report.mpi_call) add(table, *report.mpi_call);
  for (const auto& training : report.training) add(table, training, report.span.span_p999_ns);
  return report.training.empty() ? table.text() : table.text() + "The 95 % intervals are in brackets.\n";
}

Json to_json(const TimelineReport& report) {
  const auto& [span, merge, merge_ranks, counters_us, killed, mpi_call, training] = report;
  Json result = {{"span_ns", span.span_ns},
                 {"span_p999_ns", span.span_p999_ns},
                 {"all_spans_p999_ns", span.all_spans_p999_ns},
                 {"clock_pair_ns", span.clock_pair_ns},
                 {"clock_pair_p999_ns", span.clock_pair_p999_ns},
                 {"disabled_ns", span.disabled_ns},
                 {"watched_ns", span.watched_ns},
                 {"merge_ranks", merge_ranks},
                 {"merge_events", merge.events},
                 {"merge_events_per_s", merge.events_per_s},
                 {"merge_wall_events_per_s", merge.wall_events_per_s},
                 {"merge_bytes", merge.trace_bytes},
                 {"counters_us", counters_us},
                 {"kills", killed.kills},
                 {"kills_sound_traces", killed.sound_traces},
                 {"kills_most_lost_us", killed.most_lost_us}};
  result["merge_peak_mib"] = merge.peak_mib ? Json(*merge.peak_mib) : Json();
  if (mpi_call) {
    result["mpi_call_ns"] = mpi_call->plain_ns;
    result["mpi_call_passed_ns"] = mpi_call->passed_ns;
    result["mpi_call_recorded_ns"] = mpi_call->recorded_ns;
  }
  result["training"] = Json::array();
  for (const auto& one : training) result["training"].push_back(to_json(one));
  return {{"bench", "timeline"}, {"machine", machine_facts()}, {"results", {result}}};
}

}  // namespace farandole

// `farandole bench timeline`: measures the recorder, compared with the clock reads that it needs, and the
// merge of a synthetic run.
// Thread safety: none; use from one thread at a time.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/options.h"
#include "farandole/base/process/launch_environment.h"
#include "farandole/base/text/phrases.h"
#include "farandole/bench/commands.h"
#include "farandole/bench/measurement.h"
#include "farandole/timeline/counters/counters.h"
#include "farandole/timeline/merge/trace_merge.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

struct TimelineBenchmarkOptions {
  std::filesystem::path folder;  // For the recorder files, which are deleted afterwards.
  int repetitions = 200;         // Repetitions of each measurement of a span.
  int merge_ranks = 4;
  int merge_events = 400'000;  // Per rank.
};

// Each span is begun and ended. Medians over the repetitions; the measurements alternate.
struct SpanCost {
  double clock_pair_ns = 0;  // Two clock reads, the minimum cost of a span.
  double span_ns = 0;        // The span is recorded.
  double disabled_ns = 0;    // The span is neither recorded nor watched.
  double watched_ns = 0;     // The span is not recorded, but kept for stall reports.
  // 99.9 % of the spans took at most this time; each span is timed separately. Medians over
  // turns of 20,000 spans.
  double clock_pair_p999_ns = 0;
  double span_p999_ns = 0;       // Measured from the first span of a new recorder.
  double all_spans_p999_ns = 0;  // Over all turns together.
};

// Totals over all traces: spans, collectives, counters and flows of a run. All files are in the page cache.
struct MergeCost {
  std::uint64_t events = 0;
  double events_per_s = 0;         // Per second of processor time, that is, on one core.
  double wall_events_per_s = 0;    // Per second of wall time, on all cores of the machine.
  double trace_bytes = 0;          // Compressed.
  std::optional<double> peak_mib;  // Memory that the merge added to the process; unknown on old kernels.
};

struct TimelineReport {
  SpanCost span;
  MergeCost merge;
  double counters_us = 0;  // Processor time of one sample; there is one sample per second.
};

constexpr int spans_a_repetition = 20'000;
// A new recorder of 64 MiB is not full after this number of spans, so every page is touched
// for the first time.
constexpr int spans_of_new_recorder = 300'000;

TimelineOptions recording_of(const TimelineBenchmarkOptions& options, int rank) {
  TimelineOptions result;
  result.file = options.folder / fmt::format("rank-{:04}.ftl", rank);
  result.rank = rank;
  result.world_size = options.merge_ranks;
  result.host = "node1";
  return result;
}

template <typename Work>
double ns_each(int count, Work&& work) {
  const std::int64_t start_ns = now_ns();
  for (int i = 0; i < count; ++i) {
    work();
    asm volatile("" ::: "memory");
  }
  return static_cast<double>(now_ns() - start_ns) / count;
}

void read_clock_twice() {
  const std::int64_t start_ns = now_ns();
  asm volatile("" ::"r"(start_ns) : "memory");
  const std::int64_t end_ns = now_ns();
  asm volatile("" ::"r"(end_ns) : "memory");
}

// Inlined like the begin and end of a span in the function that is timed.
[[gnu::always_inline]] inline void take_span(Timeline& timeline) {
  const Span span(timeline, Category::forward, "forward");
  asm volatile("" ::: "memory");
}

// Returns a sample with memory for `count` values that is already mapped. A page fault between two calls
// would slow the second call.
Sample with_room_for(std::size_t count) {
  Sample result;
  result.us.assign(count, 0);
  result.us.clear();
  return result;
}

// Times each call separately and subtracts the median cost of the timing.
template <typename Work>
void time_each(Sample& sample, int count, double added_ns, Work&& work) {
  for (int i = 0; i < count; ++i) {
    const std::int64_t start_ns = now_ns();
    work();
    sample.us.push_back((static_cast<double>(now_ns() - start_ns) - added_ns) * 1e-3);
  }
}

// Records one step of a training run. Its times are as irregular as real ones, so that
// they compress equally badly.
void record_step(Timeline& timeline, TrackId reducer, std::mt19937& random, std::int64_t step,
                 std::int64_t at) {
  constexpr int buckets = 6;
  const auto span = [&](Category category, const char* name, std::int64_t from, std::int64_t to) {
    timeline.span(category, name, at + from, at + to);
  };
  const auto jitter = [&] { return static_cast<std::int64_t>(random() % 400'000); };
  timeline.set_step(step);
  const std::int64_t fetched = 300'000 + jitter();
  const std::int64_t forward = fetched + 3'000'000 + jitter();
  const std::int64_t backward = forward + 6'000'000 + jitter();
  const std::int64_t reduced = backward + 1'000'000 + jitter();
  const std::int64_t end = reduced + 500'000 + jitter();
  span(Category::optimizer, "zero gradients", 2'000 + jitter() % 1'000, 20'000);
  span(Category::data, "data", 20'000, fetched);
  span(Category::forward, "forward", fetched + 500, forward);
  span(Category::backward, "backward", forward + 500, backward);
  for (int bucket = 0; bucket < buckets; ++bucket) {
    const std::int64_t start = forward + 1'000'000 + bucket * 1'000'000 + jitter();
    timeline.collective_on(reducer, timeline.intern(fmt::format("bucket {}", bucket)),
                           timeline.intern("allreduce"),
                           {static_cast<std::uint32_t>(step * buckets + bucket), 1, 1 << 22}, at + start,
                           at + start + 500'000 + jitter() / 4);
  }
  span(Category::wait, "wait for gradients", backward + 300, reduced);
  span(Category::optimizer, "update", reduced + 200, end);
  span(Category::step, "step", 0, end + 300);
  if (step % 64 == 0)
    timeline.counter(timeline.intern("CPU %"), 90 + 1e-6 * static_cast<double>(jitter()), at);
}
constexpr int events_a_step = 14;  // about

void record_rank(const TimelineBenchmarkOptions& options, int rank) {
  Timeline timeline(recording_of(options, rank));
  timeline.name_thread("training");
  const TrackId reducer = timeline.add_track("gradients");
  std::mt19937 random(static_cast<unsigned>(rank));
  const std::int64_t start = now_ns();
  for (int step = 0; step < options.merge_events / events_a_step; ++step)
    record_step(timeline, reducer, random, step, start + step * std::int64_t{14'000'000});
}

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double status_mib(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name; status.ignore(1 << 10, '\n'))
    if (double kib = 0; name == field && status >> kib) return kib / 1024;
  return 0;
}

// Resets the peak memory of the process, so that it is measured from now on.
bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  return static_cast<bool>(file << 5 << std::flush);
}

SpanCost measure_spans(const TimelineBenchmarkOptions& options) {
  Timeline off;
  Sample pair, span, disabled, watched;
  {
    Timeline timeline(recording_of(options, 0));
    timeline.name_thread("training");
    for (int repetition = 0; repetition < options.repetitions; ++repetition) {
      pair.us.push_back(ns_each(spans_a_repetition, read_clock_twice) * 1e-3);
      span.us.push_back(ns_each(spans_a_repetition, [&] { take_span(timeline); }) * 1e-3);
      disabled.us.push_back(ns_each(spans_a_repetition, [&] { take_span(off); }) * 1e-3);
      current_span.watched = true;
      watched.us.push_back(ns_each(spans_a_repetition, [&] { take_span(off); }) * 1e-3);
      current_span.watched = false;
    }
  }
  // The measurements alternate, and the median is taken, because other processes disturb
  // the machine in bursts.
  constexpr int rounds = 3;
  Sample pair_p999, span_p999;
  Sample each = with_room_for(spans_a_repetition);
  Sample all_spans = with_room_for(std::size_t{rounds} * spans_of_new_recorder);
  const auto p999 = [&](double added_ns, auto&& work) {
    each.us.clear();
    time_each(each, spans_a_repetition, added_ns, work);
    return each.quantile(0.999);
  };
  time_each(each, spans_a_repetition, 0, [] {});
  const double added_ns = each.median() * 1e3;
  for (int round = 0; round < rounds; ++round) {
    Timeline timeline(recording_of(options, 0));
    timeline.name_thread("training");
    for (int done = 0; done < spans_of_new_recorder; done += spans_a_repetition) {
      pair_p999.us.push_back(p999(added_ns, read_clock_twice));
      span_p999.us.push_back(p999(added_ns, [&] { take_span(timeline); }));
      all_spans.us.insert(all_spans.us.end(), each.us.begin(), each.us.end());
    }
  }
  std::filesystem::remove(recording_of(options, 0).file);
  return {pair.median() * 1e3,
          span.median() * 1e3,
          disabled.median() * 1e3,
          watched.median() * 1e3,
          pair_p999.median() * 1e3,
          span_p999.median() * 1e3,
          all_spans.quantile(0.999) * 1e3};
}

MergeCost measure_merge(const TimelineBenchmarkOptions& options) {
  for (int rank = 0; rank < options.merge_ranks; ++rank) record_rank(options, rank);
  const auto trace = options.folder / "timeline.json.gz";
  MergeCost best;
  for (int repetition = 0; repetition < 3; ++repetition) {
    const bool peak_is_known = reset_peak();
    const double before_mib = status_mib("VmRSS:");
    const double before_s = processor_seconds();
    const std::int64_t start_ns = now_ns();
    std::vector<RankTimeline> ranks;
    for (int rank = 0; rank < options.merge_ranks; ++rank)
      ranks.push_back({open_source(recording_of(options, rank).file), ClockModel(), true});
    const MergeResult result = merge_timelines(std::move(ranks), trace);
    const auto events = static_cast<double>(result.events);
    MergeCost cost;
    cost.wall_events_per_s = events / seconds_since(start_ns);
    cost.events_per_s = events / (processor_seconds() - before_s);
    cost.events = result.events;
    cost.trace_bytes = static_cast<double>(std::filesystem::file_size(trace));
    if (peak_is_known) cost.peak_mib = status_mib("VmHWM:") - before_mib;
    if (repetition == 0) best = cost;
    if (cost.events_per_s > best.events_per_s) {
      // From the first round; later rounds reuse memory that the process has kept.
      cost.peak_mib = best.peak_mib;
      best = cost;
    }
  }
  for (int rank = 0; rank < options.merge_ranks; ++rank)
    std::filesystem::remove(recording_of(options, rank).file);
  std::filesystem::remove(trace);
  return best;
}

// Returns the processor time of one sample of CounterSampler. Units: microseconds.
double measure_counters(const TimelineBenchmarkOptions& options) {
  const auto where = recording_of(options, 0);
  double microseconds = 0;
  {
    Timeline timeline(where);
    const double before_s = processor_seconds();
    {
      const CounterSampler sampler(timeline, {.interval = std::chrono::milliseconds(1), .gpu = ""});
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    microseconds = (processor_seconds() - before_s) * 1e6;
  }
  const RecorderFile file(where.file);
  std::size_t samples = 0;
  for (std::size_t slot = 0; slot < file.threads().size(); ++slot)
    for (const Record& record : file.records(slot))
      samples += file.names().at(record.name) == "memory MiB" ? 1 : 0;
  std::filesystem::remove(where.file);
  return microseconds / static_cast<double>(samples);
}

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

// A table of measured values and targets.
std::string to_text(const TimelineReport& report) {
  Table table;
  add(table, report.span);
  add(table, report.merge);
  table.line("counters, once a second", fmt::format("{:.0f} µs", report.counters_us));
  return table.text();
}

Json to_json(const TimelineReport& report, int merge_ranks) {
  const auto& [span, merge, counters_us] = report;
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
                 {"counters_us", counters_us}};
  result["merge_peak_mib"] = merge.peak_mib ? Json(*merge.peak_mib) : Json();
  return {{"bench", "timeline"}, {"machine", machine_facts()}, {"results", {result}}};
}

}  // namespace

int timeline_command(int argc, const char* const* argv) {
  namespace po = boost::program_options;
  TimelineBenchmarkOptions options;
  std::string folder = std::filesystem::temp_directory_path().string(), format = "text";
  OptionParser parser;
  parser.usage =
      "Usage: farandole bench timeline [OPTION]...\n\n"
      "Measures the cost of a span compared with two clock reads, and the speed of the merge. The measurements\n"
      "alternate. Of several ranks, only rank 0 measures.\n";
  parser.visible.add_options()(
      "folder", po::value(&folder)->default_value(folder),
      "folder for the recorder files; for realistic results, use the file system of your run directories")(
      "repetitions", po::value(&options.repetitions)->default_value(options.repetitions),
      "repetitions of 20000 spans")("ranks",
                                    po::value(&options.merge_ranks)->default_value(options.merge_ranks),
                                    "ranks of the merged run")(
      "events", po::value(&options.merge_events)->default_value(options.merge_events),
      "events of each rank of the merged run")("format", po::value(&format)->default_value(format),
                                               "text or json");
  if (!parser.parse(argc - 1, argv + 1)) return 0;
  if (options.repetitions < 1) throw UserError("--repetitions must be at least 1");
  if (options.merge_ranks < 1 || options.merge_ranks > 10'000)
    throw UserError("--ranks must be between 1 and 10000");
  if (options.merge_events < 100) throw UserError("--events must be at least 100");
  check_format(format);
  if (const auto rank = launched_rank(&std::getenv); rank && rank->value > 0) return 0;

  const TemporaryFolder place(folder);
  options.folder = place.path();
  const MergeCost merge = measure_merge(options);  // First, before the process keeps memory that it reuses.
  const TimelineReport report{measure_spans(options), merge, measure_counters(options)};
  if (format == "json")
    fmt::print("{}\n", json_text(to_json(report, options.merge_ranks), 1));
  else
    fmt::print("{}", to_text(report));
  return 0;
}

}  // namespace farandole

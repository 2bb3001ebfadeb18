#include "farandole/bench/timeline_command.h"

#include <filesystem>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/bench/benchmark_folder.h"
#include "farandole/bench/machine_facts.h"
#include "farandole/bench/timeline_benchmark.h"

namespace farandole {
namespace {

std::string text_of(const SpanCost& span, const MergeCost& merge) {
  std::string text = fmt::format("{:<44} {:>10} {:>24}\n", "", "measured", "to reach");
  const auto line = [&](std::string_view what, const std::string& value, const std::string& goal) {
    text += fmt::format("{:<44} {:>10} {:>24}\n", what, value, goal);
  };
  const auto ns = [](double value) { return fmt::format("{:.1f} ns", value); };
  line("two clock reads", ns(span.clock_pair_ns), "");
  line("span, begin and end", ns(span.span_ns), fmt::format("1.5 × = {:.1f} ns", 1.5 * span.clock_pair_ns));
  line("  99.9 % of the spans take at most", ns(span.span_p999_ns),
       fmt::format("+ 100 = {:.1f} ns", span.clock_pair_ns + 100));
  line("  99.9 % of the two clock reads", ns(span.clock_pair_p999_ns), "");
  line("span, nothing recorded", ns(span.disabled_ns), "1.0 ns");
  line("  but watched for stalls", ns(span.watched_ns), "");
  line("merge, events a second by one core", fmt::format("{:.2f} M", merge.events_per_s * 1e-6), "2.00 M");
  line(fmt::format("  by the machine's, {} events", merge.events),
       fmt::format("{:.2f} M", merge.wall_events_per_s * 1e-6), "");
  line("  bytes an event, compressed",
       fmt::format("{:.1f}", merge.trace_bytes / static_cast<double>(merge.events)), "");
  if (merge.peak_mib) line("  memory", fmt::format("{:.0f} MiB", *merge.peak_mib), "64 MiB + 1 a rank");
  return text;
}

nlohmann::json json_of(const SpanCost& span, const MergeCost& merge, int ranks) {
  nlohmann::json result = {{"span_ns", span.span_ns},
                           {"span_p999_ns", span.span_p999_ns},
                           {"clock_pair_ns", span.clock_pair_ns},
                           {"clock_pair_p999_ns", span.clock_pair_p999_ns},
                           {"disabled_ns", span.disabled_ns},
                           {"watched_ns", span.watched_ns},
                           {"merge_ranks", ranks},
                           {"merge_events", merge.events},
                           {"merge_events_per_s", merge.events_per_s},
                           {"merge_wall_events_per_s", merge.wall_events_per_s},
                           {"merge_bytes", merge.trace_bytes}};
  result["merge_peak_mib"] = merge.peak_mib ? nlohmann::json(*merge.peak_mib) : nlohmann::json();
  return {{"bench", "timeline"}, {"machine", machine_facts()}, {"results", {result}}};
}

}  // namespace

int timeline_command(int argc, const char* const* argv) {
  namespace po = boost::program_options;
  TimelineBenchmarkOptions options;
  std::string folder = std::filesystem::temp_directory_path().string(), format = "text";
  OptionParser parser;
  parser.usage =
      "usage: farandole bench timeline [OPTION]…\n"
      "What a span costs beside its two clock reads, and how fast recorders' files become a trace. The\n"
      "measurements take turns; medians.\n";
  parser.visible.add_options()("folder", po::value(&folder)->default_value(folder),
                               "where the recorders' files lie: what a run's --run-dir is on counts")(
      "repetitions", po::value(&options.repetitions)->default_value(options.repetitions),
      "of 20000 spans each")("ranks", po::value(&options.merge_ranks)->default_value(options.merge_ranks),
                             "of the merged run")(
      "events", po::value(&options.merge_events)->default_value(options.merge_events), "of each rank")(
      "format", po::value(&format)->default_value(format), "text or json");
  if (!parser.parse(argc - 1, argv + 1)) return 0;
  if (options.repetitions < 1) throw UserError("--repetitions must be at least 1");
  if (options.merge_ranks < 1 || options.merge_ranks > 10'000)
    throw UserError("--ranks must be between 1 and 10000");
  if (options.merge_events < 100) throw UserError("--events must be at least 100");
  if (format != "text" && format != "json")
    throw UserError("--format cannot be '" + format + "'; it is text or json");
  const BenchmarkFolder place(folder);
  options.folder = place.path();
  const MergeCost merge = measure_merge(options);
  const SpanCost span = measure_spans(options);
  if (format == "text")
    fmt::print("{}", text_of(span, merge));
  else
    fmt::print("{}\n", json_of(span, merge, options.merge_ranks).dump(1));
  return 0;
}

}  // namespace farandole

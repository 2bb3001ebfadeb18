#include <filesystem>
#include <fmt/format.h>
#include <string>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/base/options.h"
#include "farandole/base/temporary_folder.h"
#include "farandole/bench/analyze_benchmark.h"
#include "farandole/bench/commands.h"
#include "farandole/bench/machine_facts.h"

namespace farandole {
namespace {

std::string text_of(const AnalyzeCost& cost) {
  const double megabytes = static_cast<double>(cost.text_bytes) * 1e-6;
  std::string text = fmt::format("{:<44} {:>12} {:>20}\n", fmt::format("a trace of {:.1f} MB", megabytes),
                                 "measured", "target");
  const auto line = [&](std::string_view what, double seconds, const std::string& goal) {
    text += fmt::format("{:<44} {:>7.0f} MB/s {:>20}\n", what, megabytes / seconds, goal);
  };
  const auto goal = [&](double share, double seconds) {
    return fmt::format("{:.0f} % = {:.0f} MB/s", 100 * share, share * megabytes / seconds);
  };
  line("simdjson On-Demand", cost.on_demand_s, "");
  line("analyze", cost.analyze_s, goal(0.4, cost.on_demand_s));
  line("zlib inflate", cost.inflate_s, "");
  line("analyze, compressed", cost.analyze_gzip_s, goal(0.6, cost.inflate_s));
  text += fmt::format("{:<44} {:>10.3f} s\n", "farandole analyze, from start to verdict", cost.verdict_s);
  return text;
}

nlohmann::json json_of(const AnalyzeCost& cost) {
  return {{"bench", "analyze"},
          {"machine", machine_facts()},
          {"results",
           {{{"text_bytes", cost.text_bytes},
             {"on_demand_s", cost.on_demand_s},
             {"analyze_s", cost.analyze_s},
             {"inflate_s", cost.inflate_s},
             {"analyze_gzip_s", cost.analyze_gzip_s},
             {"verdict_s", cost.verdict_s}}}}};
}

}  // namespace

int analyze_command(int argc, const char* const* argv) {
  namespace po = boost::program_options;
  std::string trace, folder = std::filesystem::temp_directory_path().string(), format = "text";
  int rounds = 7;
  OptionParser parser;
  parser.usage =
      "Usage: farandole bench analyze TRACE [OPTION]...\n\n"
      "Measures how fast a plain and a compressed trace are analyzed, compared with simdjson and zlib. The\n"
      "measurements alternate; the medians are printed.\n";
  parser.visible.add_options()("folder", po::value(&folder)->default_value(folder),
                               "folder for the two files")(
      "rounds", po::value(&rounds)->default_value(rounds), "repetitions of each measurement")(
      "format", po::value(&format)->default_value(format), "text or json")(
      "trace", po::value(&trace),
      "A run's timeline.json.gz, or a trace of PyTorch's profiler (positional argument).");
  parser.positional.add("trace", 1);
  if (!parser.parse(argc - 1, argv + 1)) return 0;
  if (trace.empty()) throw UserError("name a trace, for example runs/quickstart/timeline.json.gz");
  if (rounds < 1) throw UserError("--rounds must be at least 1");
  if (format != "text" && format != "json")
    throw UserError("--format cannot be '" + format + "'; it is text or json");
  const TemporaryFolder place(folder);
  const auto cost = measure_analyze(trace, place.path(), rounds);
  if (format == "text")
    fmt::print("{}", text_of(cost));
  else
    fmt::print("{}\n", json_of(cost).dump(1));
  return 0;
}

}  // namespace farandole

#include <array>
#include <cstddef>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <simdjson.h>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <vector>
#include <zlib.h>

#include "farandole/analyzer/report/report.h"
#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/options.h"
#include "farandole/base/process/program.h"
#include "farandole/base/quantile.h"
#include "farandole/base/text/json.h"
#include "farandole/bench/commands.h"
#include "farandole/bench/machine_facts.h"
#include "farandole/timeline/gzip/gzip_writer.h"
#include "farandole/timeline/gzip/inflated_file.h"

namespace farandole {
namespace {

// Units: seconds. Medians over rounds in which the measurements alternate.
struct AnalyzeCost {
  std::size_t text_bytes = 0;  // Size of the uncompressed trace.
  double on_demand_s = 0;  // simdjson's On-Demand parser reads the fields of each event from text in memory.
  double analyze_s = 0;    // Uncompressed file, all metrics, with the analyzer's default threads.
  double inflate_s = 0;    // zlib decompresses the compressed file.
  double analyze_gzip_s = 0;  // Compressed file, all metrics.
  double verdict_s = 0;       // farandole-analyze on the compressed file, from start to end of the process.
};

std::string text_of(const std::filesystem::path& trace) {
  const auto file = InflatedFile::open(trace);
  if (file == nullptr) throw UserError("trace " + trace.string() + " cannot be opened");
  std::string text;
  std::vector<char> piece(std::size_t{1} << 20);
  for (std::size_t got = 0; (got = file->read(piece.data(), piece.size())) > 0;)
    text.append(piece.data(), got);
  if (!file->damage().empty()) throw CorruptInput("trace " + trace.string() + ": " + file->damage());
  return text;
}

void write_files(const std::string& text, const std::filesystem::path& plain,
                 const std::filesystem::path& compressed) {
  if (!(std::ofstream(plain, std::ios::binary) << text << std::flush))
    throw Error("cannot write " + plain.string());
  GzipWriter writer(compressed);
  for (std::size_t at = 0; at < text.size(); at += GzipWriter::piece_bytes)
    writer.write(std::string_view(text).substr(at, GzipWriter::piece_bytes));
  writer.finish();
}

// Reads each field once, and numbers as numbers, as the analyzer does.
double on_demand(const simdjson::padded_string& text) {
  namespace ondemand = simdjson::ondemand;
  ondemand::parser parser;
  auto document = parser.iterate(text);
  const bool is_array = document.type().value() == ondemand::json_type::array;
  ondemand::array events =
      is_array ? document.get_array().value() : document["traceEvents"].get_array().value();
  double sum = 0;
  for (auto event : events) {
    for (auto field : event.get_object()) {
      const std::string_view key = field.unescaped_key().value();
      auto value = field.value().value();
      if (key == "ts" || key == "dur") {
        sum += value.get_double().value();
      } else if (key == "pid" || key == "tid") {
        std::int64_t number = 0;
        if (value.get_int64().get(number) == simdjson::SUCCESS) sum += static_cast<double>(number);
      } else if (key == "name" || key == "cat" || key == "ph") {
        sum += static_cast<double>(value.get_string().value().size());
      } else if (key == "args") {
        for (auto arg : value.get_object()) sum += static_cast<double>(arg.unescaped_key().value().size());
      }
    }
  }
  return sum;
}

double on_demand_of(const std::filesystem::path& trace, const simdjson::padded_string& text) {
  try {
    return on_demand(text);
  } catch (const simdjson::simdjson_error& error) {
    throw CorruptInput("trace " + trace.string() + " is not a valid trace: " + error.what());
  }
}

double inflate(const std::filesystem::path& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw Error("cannot open " + path.string());
  gzbuffer(file, 128 << 10);
  std::vector<char> piece(std::size_t{256} << 10);
  double bytes = 0;
  for (int got = 0; (got = gzread(file, piece.data(), static_cast<unsigned>(piece.size()))) > 0;)
    bytes += got;
  gzclose(file);
  return bytes;
}

// Runs the program; its report is discarded.
double run_analyzer(const std::filesystem::path& trace) {
  std::string program = program_folder() / "farandole-analyze", argument = trace, output = "/dev/null",
              option = "-o";
  const std::array<char*, 5> argv = {program.data(), argument.data(), option.data(), output.data(), nullptr};
  pid_t child = 0;
  int status = 0;
  if (posix_spawn(&child, program.c_str(), nullptr, nullptr, argv.data(), environ) != 0 ||
      waitpid(child, &status, 0) != child || status != 0)
    throw Error("cannot run " + program);
  return status;
}

// Writes the trace, plain and compressed, to `folder`.
// Throws: UserError or CorruptInput if the trace cannot be read.
AnalyzeCost measure_analyze(const std::filesystem::path& trace, const std::filesystem::path& folder,
                            int rounds) {
  analyze_run(trace);  // Throws if the trace cannot be analyzed.
  const auto text = text_of(trace);
  const auto plain = folder / "trace.json", compressed = folder / "trace.json.gz";
  write_files(text, plain, compressed);
  const simdjson::padded_string padded(text);
  struct Rival {
    double AnalyzeCost::*cost;
    std::function<double()> run;
    std::vector<double> seconds;
  };
  std::array<Rival, 5> rivals = {
      {{&AnalyzeCost::on_demand_s, [&] { return on_demand_of(trace, padded); }, {}},
       {&AnalyzeCost::analyze_s, [&] { return static_cast<double>(analyze_run(plain).events); }, {}},
       {&AnalyzeCost::inflate_s, [&] { return inflate(compressed); }, {}},
       {&AnalyzeCost::analyze_gzip_s,
        [&] { return static_cast<double>(analyze_run(compressed).events); },
        {}},
       {&AnalyzeCost::verdict_s, [&] { return run_analyzer(compressed); }, {}}}};
  volatile double sink = 0;  // Keeps the compiler from removing the loop.
  for (int round = 0; round < rounds; ++round)
    for (auto& rival : rivals) {
      const auto start = now_ns();
      sink = rival.run();
      rival.seconds.push_back(seconds_since(start));
    }
  static_cast<void>(sink);
  AnalyzeCost cost;
  cost.text_bytes = text.size();
  for (const auto& rival : rivals) cost.*rival.cost = quantile(rival.seconds, 0.5);
  return cost;
}

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

Json json_of(const AnalyzeCost& cost) {
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
      "a run's timeline.json.gz, or a trace of PyTorch's profiler (positional argument)");
  parser.positional.add("trace", 1);
  if (!parser.parse(argc - 1, argv + 1)) return 0;
  if (trace.empty()) throw UserError("name a trace, for example runs/quickstart/timeline.json.gz");
  if (rounds < 1) throw UserError("--rounds must be at least 1");
  check_format(format);
  const TemporaryFolder place(folder);
  const auto cost = measure_analyze(trace, place.path(), rounds);
  if (format == "text")
    fmt::print("{}", text_of(cost));
  else
    fmt::print("{}\n", json_text(json_of(cost), 1));
  return 0;
}

}  // namespace farandole

// Measures the analyzer against the libraries beneath it, on one trace: read_benchmark TRACE [ROUNDS]. Prints
// medians of rounds in which the rivals take turns: simdjson's On-Demand pass over the text, which takes each
// event's fields, and for a gzip file zlib's inflate; the analyzer's rate includes reading the file and all
// metrics.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <functional>
#include <iostream>
#include <simdjson.h>
#include <vector>
#include <zlib.h>

#include "farandole/analyzer/report.h"
#include "farandole/base/clock.h"

namespace {

std::string inflate(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  gzbuffer(file, 128 << 10);
  std::string text;
  std::vector<char> buffer(std::size_t{1} << 20);
  for (int got = 0; (got = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(got));
  gzclose(file);
  return text;
}

std::size_t inflate_only(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  gzbuffer(file, 128 << 10);
  std::vector<char> buffer(std::size_t{256} << 10);
  std::size_t bytes = 0;
  for (int got = 0; (got = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0;)
    bytes += static_cast<std::size_t>(got);
  gzclose(file);
  return bytes;
}

// Each field once, numbers as numbers, as the analyzer needs them.
double on_demand(const simdjson::padded_string& text) {
  namespace ondemand = simdjson::ondemand;
  ondemand::parser parser;
  auto document = parser.iterate(text);
  double sum = 0;
  ondemand::array events;
  ondemand::value top;
  if (document.type().value() == ondemand::json_type::array)
    events = document.get_array().value();
  else
    events = document["traceEvents"].get_array().value();
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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "read_benchmark TRACE [ROUNDS]\n";
    return 64;
  }
  const std::string path = argv[1];
  const simdjson::padded_string text(inflate(path));
  const auto mb = static_cast<double>(text.size()) * 1e-6;
  struct Rival {
    const char* name;
    std::function<void()> run;
    std::vector<double> seconds;
  };
  volatile double sink = 0;
  std::vector<Rival> rivals = {
      {"simdjson On-Demand", [&] { sink = on_demand(text); }, {}},
      {"inflate or read", [&] { sink = static_cast<double>(inflate_only(path)); }, {}},
      {"read the events",
       [&] {
         farandole::TraceVisitor nothing;
         sink = static_cast<double>(farandole::read_trace(path, nothing).events);
       },
       {}},
      {"read the run", [&] { sink = static_cast<double>(farandole::read_run(path).events); }, {}},
      {"analyze the run", [&] { sink = static_cast<double>(farandole::analyze_run(path).events); }, {}}};
  for (int round = argc > 2 ? std::atoi(argv[2]) : 7; round > 0; --round)
    for (auto& rival : rivals) {
      const auto start = farandole::now_ns();
      rival.run();
      rival.seconds.push_back(farandole::seconds_since(start));
    }
  for (const auto& rival : rivals)
    fmt::print("{:<20} {:8.1f} MB/s  {:.3f} s\n", rival.name, mb / median(rival.seconds),
               median(rival.seconds));
  return 0;
} catch (const std::exception& error) {
  std::cerr << "read_benchmark: " << error.what() << "\n";
  return 1;
}

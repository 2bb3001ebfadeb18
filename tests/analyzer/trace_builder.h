// Builds small traces with known answers, as the vocabulary in timeline/event.h says,
// and writes them gzipped or plain.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>
#include <zlib.h>

#include <nlohmann/json.hpp>

#include "farandole/base/files/temporary_folder.h"

namespace farandole::testing {

inline void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

inline void write_gzip(const std::filesystem::path& file, const std::string& text) {
  gzFile stream = gzopen(file.c_str(), "wb1");
  gzwrite(stream, text.data(), static_cast<unsigned>(text.size()));
  gzclose(stream);
}

// Units: nanoseconds.
class TraceBuilder {
 public:
  static constexpr std::int64_t ms = 1'000'000;

  explicit TraceBuilder(int ranks, bool on_one_node = false) : ranks_(ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      add({{"ph", "M"},
           {"name", "process_name"},
           {"pid", rank + 1},
           {"args",
            {{"name", "rank " + std::to_string(rank)},
             {"rank", rank},
             {"host", "node" + std::to_string(on_one_node ? 0 : rank)}}}});
      thread(rank, 0, "training");
      thread(rank, 1, "communication");
    }
  }

  static std::int64_t tid(int rank, int index) { return 1'000'000 + 1'000 * std::int64_t{rank} + index; }

  void add(const nlohmann::json& event) { events_.push_back(event.dump()); }

  void thread(int rank, int index, const std::string& name) {
    add({{"ph", "M"},
         {"name", "thread_name"},
         {"pid", rank + 1},
         {"tid", tid(rank, index)},
         {"args", {{"name", name}}}});
  }

  void span(int rank, int index, const std::string& category, std::int64_t start, std::int64_t end,
            nlohmann::json args = nlohmann::json::object(), const std::string& name = "") {
    add({{"ph", "X"},
         {"cat", category},
         {"name", name.empty() ? category : name},
         {"pid", rank + 1},
         {"tid", tid(rank, index)},
         {"ts", static_cast<double>(start) / 1000},
         {"dur", static_cast<double>(end - start) / 1000},
         {"args", std::move(args)}});
  }

  void step(int rank, std::int64_t number, std::int64_t start, std::int64_t end) {
    span(rank, 0, "step", start, end, {{"step", number}});
  }

  void collective(int rank, int index, std::int64_t sequence, std::int64_t start, std::int64_t end,
                  std::uint64_t bytes = 1'000'000, const std::string& name = "bucket 0", int communicator = 0,
                  const std::string& operation = "allreduce") {
    span(rank, index, "communication", start, end,
         {{"operation", operation}, {"communicator", communicator}, {"sequence", sequence}, {"bytes", bytes}},
         name);
  }

  // In the order of TraceWriter, with the kind before the value.
  void counter(int rank, const std::string& name, std::int64_t at, double value) {
    events_.push_back(nlohmann::ordered_json{{"ph", "C"},
                                             {"name", name},
                                             {"pid", rank + 1},
                                             {"ts", static_cast<double>(at) / 1000},
                                             {"args", {{"value", value}}}}
                          .dump());
  }

  nlohmann::json& other_data() { return other_data_; }

  std::string text() const {
    nlohmann::json header = other_data_;
    header["farandole_trace"] = 1;
    header["ranks"] = ranks_;
    if (!header.contains("clock_residual_us"))
      header["clock_residual_us"] = std::vector<double>(static_cast<std::size_t>(ranks_), 0.0);
    std::string text = R"({"displayTimeUnit":"ms","otherData":)" + header.dump() + ",\"traceEvents\":[\n";
    for (std::size_t i = 0; i < events_.size(); ++i) text += (i > 0 ? ",\n" : "") + events_[i];
    return text + "\n]}\n";
  }

  // RUN/timeline.json.gz and RUN/run.json.
  void write_run(const std::filesystem::path& run, const nlohmann::json& run_json) const {
    std::filesystem::create_directories(run);
    write_gzip(run / "timeline.json.gz", text());
    write_text(run / "run.json", run_json.dump());
  }

 private:
  int ranks_;
  nlohmann::json other_data_ = nlohmann::json::object();
  std::vector<std::string> events_;
};

}  // namespace farandole::testing

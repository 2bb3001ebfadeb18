// All contents of a report in one value, and the formats that are written from it.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/analyzer/compare/comparison.h"
#include "farandole/analyzer/compare/scaling.h"
#include "farandole/analyzer/findings/stragglers.h"
#include "farandole/analyzer/findings/verdict.h"
#include "farandole/analyzer/findings/wait_causes.h"
#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/metrics/resources.h"
#include "farandole/base/run/goodput.h"
#include "farandole/base/run/model_rate.h"

namespace farandole {

struct RunReport {
  std::filesystem::path path;
  RunFacts facts;
  std::uint64_t events = 0;
  TrainingLog log;
  Resources resources;
  RunMetrics metrics;
  std::vector<Straggler> stragglers;
  std::vector<WaitCause> wait_causes;
  std::vector<Loss> losses;
  std::optional<Goodput> goodput;  // Over all starts in the run directory; no value if it is none.
  std::string verdict;
  std::vector<Finding> findings;
};

struct Report {
  std::vector<RunReport> runs;
  Scaling scaling;
  // Runs with which the first run and its repetitions are compared.
  std::vector<std::filesystem::path> against;
  std::optional<Comparison> comparison;  // No value: there is no comparison.
  std::string no_comparison;             // Why the requested comparison does not exist.
  std::vector<std::string> failures;     // Failed conditions of --fail-on.
};

// Reads one run and frees its events before it returns.
// Throws: the errors of read_run.
RunReport analyze_run(const std::filesystem::path& path);

// False for a run without GPUs, which has nothing to say about them.
bool has_gpu_part(const RunReport& run);
// In the window; nothing if it is unknown what the model of a step needs, or how long a step is.
std::optional<ModelRate> model_rate_of(const RunReport& run);
// "idle 4.1: kernel wait 3.9, host wait 0.2", in percent of the window; "" if the GPUs were never idle.
std::string idle_text(const RunMetrics& metrics);
// What was not finite: "2 skipped steps, 1 rollback, 3 logged values"; "" if there is nothing.
std::string events_text(const TrainingLog& log);

// `runs` must not be empty; their order is kept.
Report report_of(std::vector<RunReport> runs);
bool are_of_one_size(const RunReport& a, const RunReport& b);
// Returns the first run and all other runs of the same size.
Runs repeats_of_first(const std::vector<RunReport>& runs);
// Returns, for example, "a" or "a and 2 more".
std::string against_text(const Report& report);

// The report in each of its formats.

// For a terminal: first the verdict, then tables of at most 100 columns. `colour`: writes ANSI attributes.
std::string report_text(const Report& report, bool colour);

// As JSON of docs/report.schema.json. An unknown value is {"unknown": "reason"}, never null. The text ends
// with a newline.
std::string report_json(const Report& report);

// As one HTML file that needs no network and contains its charts. `output` is the path of the file, which is
// needed for links to the traces; empty means the current folder.
std::string report_html(const Report& report, const std::filesystem::path& output);

}  // namespace farandole

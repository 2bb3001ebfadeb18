// Everything that a report says, in one value: what text, JSON, HTML and CSV are written from. Usable from
// any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farandole/analyzer/compare/comparison.h"
#include "farandole/analyzer/compare/scaling.h"
#include "farandole/analyzer/findings/stragglers.h"
#include "farandole/analyzer/findings/verdict.h"
#include "farandole/analyzer/findings/wait_causes.h"
#include "farandole/analyzer/findings/waterfall.h"
#include "farandole/analyzer/metrics/critical_path.h"
#include "farandole/analyzer/metrics/metrics.h"
#include "farandole/analyzer/what_if/validation.h"
#include "farandole/analyzer/what_if/what_if.h"

namespace farandole {

struct RunReport {
  std::filesystem::path path;
  RunFacts facts;
  std::uint64_t events = 0;
  RunMetrics metrics;
  std::vector<Straggler> stragglers;
  std::vector<WaitCause> wait_causes;
  CriticalPath critical_path;
  std::vector<Loss> losses;
  std::string verdict;
  std::vector<Finding> findings;
  std::optional<Replay> replay;       // where it was asked for
  std::vector<Prediction> what_if{};  // from it
};

struct Report {
  std::vector<RunReport> runs;
  Scaling scaling;
  std::vector<std::filesystem::path>
      against;                           // the runs that the first one and its repeats are compared with
  std::optional<Comparison> comparison;  // where there is one
  std::string no_comparison;             // why there is none though it was asked for
  std::vector<std::string> failures;     // of --fail-on
  std::vector<Validation> validations;   // of --validate, by run
};

// Reads one run and frees its events before it returns; replays it where there are scenarios, or where
// `replayed`. Throws as read_run does.
RunReport analyze_run(const std::filesystem::path& path, std::span<const Scenario> scenarios = {},
                      bool replayed = false);

// All runs, which must not be empty, in their order.
Report report_of(std::vector<RunReport> runs);
bool are_of_one_size(const RunReport& a, const RunReport& b);
// The first run, and those of the others that are of its size.
Runs repeats_of_first(const std::vector<RunReport>& runs);
// "a", "a and 2 more".
std::string against_text(const Report& report);

}  // namespace farandole

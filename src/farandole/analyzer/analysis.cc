#include "farandole/analyzer/analysis.h"

#include <utility>

#include "farandole/analyzer/compare/comparison.h"
#include "farandole/analyzer/report/report.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

void warn(const AnalysisOptions& options, const std::string& message) {
  if (options.warn) options.warn(message);
}

// A damaged run among several is reported and left out. If the only run is damaged, the analysis fails.
std::vector<RunReport> analyze_runs(const std::vector<std::filesystem::path>& paths,
                                    const AnalysisOptions& options) {
  std::vector<RunReport> runs;
  for (const auto& path : paths) {
    try {
      runs.push_back(analyze_run(path));
    } catch (const CorruptInput& error) {
      if (paths.size() == 1) throw;
      warn(options, error.what());
    }
  }
  if (runs.empty()) throw CorruptInput("none of the runs can be analyzed");
  return runs;
}

// Damaged runs in `against` are reported and left out. They do not affect the report on the first runs.
void compare_with(const AnalysisOptions& options, Report& report) {
  std::vector<RunReport> others;
  for (const auto& path : options.against) {
    try {
      others.push_back(analyze_run(path));
    } catch (const CorruptInput& error) {
      warn(options, std::string(error.what()) + ". This run is left out of the comparison");
    }
  }
  for (const auto& other : others) {
    if (are_of_one_size(other, others.front()))
      report.against.push_back(other.path);
    else
      warn(options, other.path.string() + " has another number of ranks than " +
                        others.front().path.string() + ". It is left out of the comparison");
  }
  if (others.empty())
    report.no_comparison = nothing_to_compare_with;
  else
    report.comparison = compare(repeats_of_first(report.runs), repeats_of_first(others));
}

}  // namespace

struct Analysis::Internals {
  Report report;
};

Analysis::Analysis(const std::vector<std::filesystem::path>& runs, const AnalysisOptions& options)
    : internals_(std::make_unique<Internals>()) {
  if (runs.empty()) throw UserError("no run given; name a run directory or a trace");
  const auto conditions = parse_conditions(options.fail_on);
  if (options.against.empty()) refuse_changes(conditions);

  auto& report = internals_->report;
  report = report_of(analyze_runs(runs, options));
  if (!options.against.empty()) compare_with(options, report);
  report.failures = farandole::failures(conditions, repeats_of_first(report.runs),
                                        report.comparison ? &*report.comparison : nullptr);
}

Analysis::~Analysis() = default;
Analysis::Analysis(Analysis&&) noexcept = default;
Analysis& Analysis::operator=(Analysis&&) noexcept = default;

std::string Analysis::text(bool colour) const {
  return report_text(internals_->report, colour);
}
std::string Analysis::json() const {
  return report_json(internals_->report);
}
std::string Analysis::html(const std::filesystem::path& output) const {
  return report_html(internals_->report, output);
}

std::vector<NamedFigure> Analysis::figures() const {
  std::vector<NamedFigure> figures;
  for (auto& [name, figure] : figures_of(repeats_of_first(internals_->report.runs)))
    figures.push_back({name, figure.value, figure.unknown});
  return figures;
}

const std::vector<std::string>& Analysis::failures() const {
  return internals_->report.failures;
}

}  // namespace farandole

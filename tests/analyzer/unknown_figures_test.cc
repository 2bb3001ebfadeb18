// What cannot be known is said to be unknown, never 0: in JSON, CSV, text and HTML.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/nsys_file.h"
#include "analyzer/trace_builder.h"

#include "farandole/analyzer/report/report_csv.h"
#include "farandole/analyzer/report/report_html.h"
#include "farandole/analyzer/report/report_json.h"

namespace farandole {
namespace {

using nlohmann::json;
using testing::execute;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::nsys_tables;

// Ranks that share no host's name, on GPUs: such runs are not replayed.
class UnknownFigures : public ::testing::Test {
 protected:
  UnknownFigures() { execute(folder_ / "report.sqlite", nsys_tables(true)); }
  RunReport gpu_run() const { return analyze_run(folder_ / "report.sqlite", {}, true); }

  const TemporaryFolder folder_;
};

TEST_F(UnknownFigures, leave_cells_empty_and_rows_out) {
  auto run = gpu_run();
  run.critical_path = {};
  run.critical_path.unknown = "the clocks are";
  const auto report = report_of({run});
  EXPECT_THAT(report_csv(report, "runs"), HasSubstr("report.sqlite,2,,10,"));
  EXPECT_EQ(report_csv(report, "critical-path"), "run,rank,phase,seconds\r\n");
}

TEST_F(UnknownFigures, are_named_of_the_run_that_predicts) {
  const auto run = gpu_run();
  auto report = report_of({run});
  report.validations.push_back(
      validate(run.path, *run.replay, {parse_held_out((folder_ / "report.sqlite").string())}));
  const auto validation = json::parse(report_json(report))["validation"][0];
  EXPECT_THAT(validation["base_step_ms"]["unknown"].get<std::string>(), HasSubstr("GPU"));
  EXPECT_THAT(report_html(report, ""), HasSubstr("whose median step is unknown ("));
}

}  // namespace
}  // namespace farandole

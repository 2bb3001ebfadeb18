#include "farandole/analyzer/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <sstream>

#include "analyzer/json_report.h"
#include "analyzer/trace_builder.h"
#include "lane.h"
#include "mutation.h"

#include "farandole/analyzer/report/formatting.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TraceBuilder;

constexpr std::int64_t ms = TraceBuilder::ms;

TraceBuilder trace_of(int ranks, int steps, const std::string& name = "bucket 0") {
  TraceBuilder trace(ranks);
  for (int step = 0; step < steps; ++step)
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t t = step * 100 * ms;
      trace.step(rank, step, t, t + 100 * ms);
      trace.span(rank, 0, "forward", t, t + 30 * ms);
      trace.span(rank, 0, "backward", t + 30 * ms, t + 80 * ms);
      trace.collective(rank, 1, step, t + (40 + rank % 3) * ms, t + 90 * ms, 4'000'000, name);
    }
  return trace;
}

json run_json(int ranks, double batch) {
  return {{"ranks", ranks},
          {"device", "cpu"},
          {"program", "mnist"},
          {"global_batch", batch},
          {"parameters", 206922},
          {"started", "2026-01-01T00:00:00Z"},
          {"ended", "2026-01-01T00:01:00Z"},
          {"exit_code", 0},
          {"restarts", 1}};
}

void expect_no_null(const json& value) {
  EXPECT_FALSE(value.is_null());
  if (value.is_structured())
    for (const auto& entry : value) expect_no_null(entry);
}

// Width in columns without ANSI attributes.
void expect_fits_terminal(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(width_of(line), report_columns) << line;
}

// analyzer.report-schema checks that all keys are there.
TEST(ReportJson, HasTheFigures) {
  const TemporaryFolder folder;
  trace_of(2, 20).write_run(folder / "n2", run_json(2, 64));
  trace_of(4, 20).write_run(folder / "n4", run_json(4, 128));
  const auto report =
      testing::json_report(report_of({analyze_run(folder / "n2"), analyze_run(folder / "n4")}));
  expect_no_null(report);
  EXPECT_EQ(report["farandole_report"], 1);
  ASSERT_EQ(report["runs"].size(), 2U);
  const auto& run = report["runs"][0];
  EXPECT_EQ(run["ranks"], 2);
  EXPECT_EQ(run["measured_ranks"], 2);
  EXPECT_EQ(run["nodes"], 2);
  ASSERT_EQ(run["by_node"].size(), 2U);
  EXPECT_EQ(run["by_node"][1]["host"], "node1");
  EXPECT_EQ(run["by_node"][1]["ranks"], 1);
  EXPECT_DOUBLE_EQ(run["by_node"][1]["compute_s"], run["by_rank"][1]["compute_s"]);
  EXPECT_EQ(run["by_node"][1]["lateness_ms"], run["by_rank"][1]["lateness_ms"]);
  EXPECT_EQ(run["outlier_steps"], json::array());
  EXPECT_EQ(run["steps"], 18);
  EXPECT_EQ(run["warmup_steps"], 2);
  EXPECT_DOUBLE_EQ(run["window_s"], 1.8);
  EXPECT_DOUBLE_EQ(run["throughput_samples_per_s"], 640);
  EXPECT_EQ(run["step_ms"]["ci95"], json::array({100.0, 100.0}));
  EXPECT_DOUBLE_EQ(run["phases"]["backward"], 0.5);
  EXPECT_EQ(run["gpu"]["unknown"], "no GPU in this run");
  EXPECT_DOUBLE_EQ(run["by_rank"][1]["lateness_ms"]["median"], 1);
  ASSERT_EQ(run["by_rank"][1]["lateness_by_step"].size(), 18U);
  EXPECT_EQ(run["by_rank"][1]["lateness_by_step"][17], (json{{"step", 19}, {"ms", 1.0}}));
  ASSERT_EQ(run["by_step"].size(), 18U);
  EXPECT_EQ(run["by_step"][0], (json{{"step", 2},
                                     {"start_s", 0.2},
                                     {"end_s", 300 * ms * 1e-9},
                                     {"longest_ms", 100.0},
                                     {"period_ms", 100.0},
                                     {"compute_s", 0.16},
                                     {"communication_s", 0.099},
                                     {"overlap_s", 0.079},
                                     {"wait_s", 0.001},
                                     {"outlier", false}}));
  EXPECT_THAT(report["scaling"]["forecast"]["unknown"], HasSubstr("add a run of 8 ranks"));
  EXPECT_EQ(report["scaling"]["mode"], "weak");
  EXPECT_DOUBLE_EQ(report["scaling"]["points"][1]["efficiency"], 1);
}

TEST(ReportJson, HasWhatTheModelNeedsAndWhoUsesTheMemory) {
  const TemporaryFolder folder;
  auto facts = run_json(2, 64);
  facts.update({{"model_flops", 3e12}, {"model_flops_from", "given by the program"}});
  trace_of(2, 20).write_run(folder / "without_peak", facts);
  facts.update({{"peak_tflops", 100}, {"peak_from", "a card, bfloat16"}});
  facts["gpu_memory_by_owner_mib"] = {{"parameters", 465}, {"peak", 1500}};
  trace_of(2, 20).write_run(folder / "run", facts);
  const auto all = report_of({analyze_run(folder / "run"), analyze_run(folder / "without_peak")});
  const auto report = testing::json_report(all);
  const auto& model = report["runs"][0]["model"];
  EXPECT_EQ(model["flops_per_step"], 3e12);
  EXPECT_DOUBLE_EQ(model["tflops"], 30);  // A step takes 100 ms.
  EXPECT_DOUBLE_EQ(model["mfu"], 0.15);   // Each of two ranks has the peak.
  EXPECT_EQ(report["runs"][0]["gpu_memory_by_owner_mib"]["peak"], 1500);
  EXPECT_THAT(report["runs"][1]["model"]["mfu"]["unknown"], HasSubstr("--peak-tflops"));
  const auto text = report_text(all, false);
  EXPECT_THAT(text,
              HasSubstr("30 TFLOP/s, MFU 15.0 % (3 TFLOP a step, given by the program; peak 100 TFLOP/s"));
  EXPECT_THAT(text, HasSubstr("MiB of rank 0's GPU: parameters 465, peak 1,500\n"));
  expect_fits_terminal(text);
  EXPECT_THAT(report_html(all, ""), HasSubstr(">30</div><div class=\"more\">TFLOP/s, MFU 15.0 %; 3 TFLOP"));
}

TEST(ReportJson, OfOneRunHasNoScaling) {
  const TemporaryFolder folder;
  trace_of(1, 3).write_run(folder / "run", json::object());
  const auto report = testing::json_report(report_of({analyze_run(folder / "run")}));
  expect_no_null(report);
  EXPECT_TRUE(report["scaling"].contains("unknown"));
  EXPECT_TRUE(report["runs"][0]["throughput_samples_per_s"].contains("unknown"));
  EXPECT_TRUE(report["runs"][0]["step_ms"]["ci95"].contains("unknown"));
}

TEST(ReportText, FitsATerminalAndBeginsWithTheVerdict) {
  const TemporaryFolder folder;
  trace_of(2, 20, std::string(300, 'n') + "\033[31m").write_run(folder / "n2", run_json(2, 64));
  trace_of(40, 5).write_run(folder / "n40", run_json(40, 64 * 20));
  trace_of(2, 1).write_run(folder / "bare", "damaged");
  const auto report =
      report_of({analyze_run(folder / "n2"), analyze_run(folder / "n40"), analyze_run(folder / "bare")});
  const auto text = report_text(report, false);
  expect_fits_terminal(text);
  EXPECT_TRUE(text.starts_with(
      "2 ranks train 640 samples/s; 80.0 % of the time is useful compute; the largest loss, "));
  EXPECT_THAT(text, Not(HasSubstr("\033")));
  EXPECT_THAT(text, HasSubstr("the 8 latest of 40 ranks"));
  EXPECT_THAT(text, HasSubstr("206,922 parameters"));
  EXPECT_THAT(text, HasSubstr("the 8 latest of 40 nodes"));
  EXPECT_THAT(text, HasSubstr("Left out: the global batch of"));
  EXPECT_THAT(report_text(report, true), HasSubstr("\033[1m"));
}

TEST(TextTable, AlignsAndShortensUtf8) {
  TextTable table({"name", "µs"}, 1);
  table.add({"é", "1.0"});
  table.add({"long", "10.25"});
  EXPECT_EQ(table.text(Style(false)), "  name     µs\n  é       1.0\n  long  10.25\n");
  EXPECT_EQ(shortened("ééééé", 3), "éé…");
  EXPECT_EQ(shortened("a\033b\n", 9), "a?b?");
  EXPECT_EQ(shortened("\xC2\x9B"
                      "31m\xC2\xA0é\x9B\xC2",
                      20),
            "?31m\xC2\xA0é?");
  EXPECT_EQ(wrapped("one two three", 2, 9), "one two\n  three");
}

TEST(ReportText, LetsNoNameSteerTheTerminal) {
  const TemporaryFolder folder;
  auto trace = trace_of(2, 20);
  trace.write_run(folder / "run", run_json(2, 64));
  auto run = analyze_run(folder / "run");
  run.findings.push_back({"Ranks wait for node \033[2J\xC2\x9B", "e\033", 5, "c\033"});
  EXPECT_THAT(report_text(report_of({run}), false),
              Not(::testing::AnyOf(HasSubstr("\033"), HasSubstr("\xC2\x9B"))));
}

TEST(Report, OfMissingOrUnsoundInputSaysSo) {
  const TemporaryFolder folder;
  EXPECT_THROW(analyze_run(folder / "nothing"), UserError);
  std::filesystem::create_directory(folder / "empty");
  EXPECT_THROW(analyze_run(folder / "empty"), UserError);
  testing::write_text(folder / "text", "not a trace");
  EXPECT_THROW(analyze_run(folder / "text"), CorruptInput);
  testing::write_text(folder / "metadata", R"([{"ph":"M","name":"process_name","pid":1,"args":{"rank":0}}])");
  EXPECT_THROW(analyze_run(folder / "metadata"), CorruptInput);
}

// Any damage leads to a report with valid JSON and text of limited width, or to an error of one line.
TEST(Report, SurvivesMutatedRuns) {
  const TemporaryFolder folder;
  const auto text = trace_of(2, 4).text();
  const auto facts = run_json(2, 64).dump();
  std::filesystem::create_directory(folder / "run");
  std::mt19937 random(seed(8));
  for (int round = 0; round < rounds(150, 20'000); ++round) {
    for (const auto* name : {"timeline.json.gz", "run.json"}) std::filesystem::remove(folder / "run" / name);
    testing::write_text(folder / "run" / "timeline.json.gz", mutated(text, random, 8));
    testing::write_text(folder / "run" / "run.json", round % 2 == 0 ? facts : mutated(facts, random, 3));
    try {
      const auto report = report_of({analyze_run(folder / "run")});
      expect_no_null(testing::json_report(report));
      expect_fits_terminal(report_text(report, false));
      EXPECT_THAT(report_html(report, ""), Not(HasSubstr("=\"nan\"")));
      compare({&report.runs[0].metrics}, {&report.runs[0].metrics});
    } catch (const CorruptInput& error) {
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    }
    if (::testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace farandole

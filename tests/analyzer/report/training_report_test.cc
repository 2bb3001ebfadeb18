// The report on loss and metrics, and what it leaves out because a run does not have it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/json_report.h"
#include "analyzer/trace_builder.h"

#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::TraceBuilder;

class TrainingReport : public ::testing::Test {
 protected:
  // A run with compute and, on several ranks, a collective in each step.
  std::filesystem::path run_of(int ranks, const std::string& metrics, const nlohmann::json& facts) {
    TraceBuilder trace(ranks);
    for (int step = 0; step < 20; ++step)
      for (int rank = 0; rank < ranks; ++rank) {
        constexpr auto millisecond = TraceBuilder::ms;
        const std::int64_t t = step * 100 * millisecond;
        trace.step(rank, step, t, t + 100 * millisecond);
        trace.span(rank, 0, "forward", t, t + 30 * millisecond);
        trace.span(rank, 0, "backward", t + 30 * millisecond, t + 80 * millisecond);
        if (ranks > 1) trace.collective(rank, 1, step, t + (40 + rank) * millisecond, t + 90 * millisecond);
      }
    trace.write_run(folder_ / "run", facts);
    if (!metrics.empty()) testing::write_text(folder_ / "run" / "metrics.jsonl", metrics);
    return folder_ / "run";
  }
  TemporaryFolder folder_;
};

constexpr const char* logged =
    R"({"step":1,"epoch":0,"loss":4,"lr":0.2,"samples_per_s":1,"step_ms":1}
{"step":5,"event":"skipped step","reason":"not finite"}
{"step":10,"epoch":0,"loss":0.5,"lr":0.1,"samples_per_s":1,"step_ms":1}
{"step":12,"epoch":0,"loss":0.75,"lr":0.05,"samples_per_s":1,"step_ms":1}
{"step":12,"epoch":0,"eval_loss":0.8,"eval_accuracy":0.9375}
{"step":14,"event":"rollback","to_step":12,"reason":"not finite"}
)";

TEST_F(TrainingReport, BeginsWithLossAndEvaluation) {
  const auto report = report_of({analyze_run(run_of(2, logged, {{"ranks", 2}, {"device", "cpu"}}))});
  const auto text = report_text(report, false);
  EXPECT_THAT(text, HasSubstr("  loss        4 at step 1, 0.75 at step 12; lowest 0.5 at step 10\n"
                              "  evaluation  step 12: loss 0.8, accuracy 0.9375\n"
                              "  metrics     at last: lr 0.05\n"
                              "  not finite  1 skipped step, 1 rollback\n"));
  const auto html = report_html(report, "");
  EXPECT_THAT(html, HasSubstr("<h2>Training</h2>"));
  for (const auto* chart : {"loss over the steps", "accuracy over the steps", "lr over the steps"})
    EXPECT_THAT(html, HasSubstr("aria-label=\"" + std::string(chart) + "\""));
  EXPECT_THAT(html, Not(HasSubstr("eval_loss over the steps")));  // In the chart of the loss.
  EXPECT_THAT(html, HasSubstr("<title>step 5: skipped</title>"));
  EXPECT_THAT(html, HasSubstr("ticks: skipped steps, dashed: rollbacks"));
  EXPECT_THAT(html, HasSubstr("lowest 0.5 at step 10"));
  EXPECT_THAT(html, HasSubstr("accuracy, evaluation"));
  const auto training = testing::json_report(report)["runs"][0]["training"];
  EXPECT_EQ(training["curves"][0]["name"], "loss");
  EXPECT_EQ(training["curves"][0]["lowest"]["step"], 10);
  EXPECT_EQ(training["curves"][0]["points"][2], nlohmann::json::parse("[12,12,0.75,0.75,0.75]"));
  EXPECT_EQ(training["skipped_at"][0], 5);
  EXPECT_EQ(training["rolled_back_at"][0]["to_step"], 12);
}

TEST_F(TrainingReport, DrawsAnyKeyAndAnyValue) {
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += fmt::format(R"({{"step":{},"<b>&\"":{},"constant":7,"huge":{}e299,"loss":{}}})", i, i - 20,
                         i % 2 == 0 ? -9 : 9, i == 3 ? "null" : "1e-12") +
             "\n";
  for (int i = 0; i < 30; ++i) lines += fmt::format(R"({{"step":40,"key {}":1}})", i) + "\n";
  const auto report = report_of({analyze_run(run_of(2, lines, {{"ranks", 2}, {"device", "cpu"}}))});
  const auto html = report_html(report, "");
  for (const auto* wrong : {"=\"nan", "=\"-nan", "inf\"", "<b>&\""}) EXPECT_THAT(html, Not(HasSubstr(wrong)));
  EXPECT_THAT(html, HasSubstr("The JSON report has 10 more."));
  EXPECT_THAT(report_text(report, false), HasSubstr("not finite  1 logged value\n"));
  testing::json_report(report);
}

TEST_F(TrainingReport, HasNoPartsForWhatARunDoesNotHave) {
  const auto one =
      report_html(report_of({analyze_run(run_of(1, "", {{"ranks", 1}, {"device", "cpu"}}))}), "");
  for (const auto* part : {"<h2>Training", "<h2>GPU", "GPU utilization", "overlap</div>", "<h2>Efficiency",
                           "<h2>Communication", "<h2>Late ranks", "<h2>Critical path", "<h2>By node",
                           "<h2>Resources", ">unknown<", "name\">memory<", ">late, median<"})
    EXPECT_THAT(one, Not(HasSubstr(part)));
  // What the user can change is said once.
  EXPECT_THAT(one, HasSubstr("<div class=\"more\">steps/s</div>"));
  EXPECT_THAT(
      one,
      HasSubstr(
          "Unknown: samples/s: run.json has no global_batch; give farandole::Run the global_batch.</p>"));
  const auto text = report_text(report_of({analyze_run(folder_ / "run")}), false);
  EXPECT_THAT(text, Not(HasSubstr("GPU")));
  const auto two = report_html(
      report_of({analyze_run(run_of(2, "", {{"ranks", 2}, {"device", "cuda"}, {"global_batch", 8}}))}), "");
  for (const auto* part : {"<h2>GPU", "the trace has no GPU kernels", "overlap</div>", "<h2>Efficiency",
                           "<h2>Communication", "<h2>Late ranks", ">late, median<"})
    EXPECT_THAT(two, HasSubstr(part));
  EXPECT_THAT(two, Not(HasSubstr("Unknown: ")));
  EXPECT_THAT(two, Not(HasSubstr("GPU utilization")));
}

}  // namespace
}  // namespace farandole

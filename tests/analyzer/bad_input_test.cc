// Sound parts are analyzed. Damaged parts are named: the file, the offset, the rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/json_report.h"
#include "analyzer/trace_builder.h"

#include "farandole/analyzer/report/report.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

using nlohmann::json;
using namespace ::testing;
using testing::TraceBuilder;

constexpr std::int64_t ms = TraceBuilder::ms;

// Eight steps of two ranks; each event is on a separate line.
std::string sound_text() {
  TraceBuilder trace(2);
  for (int step = 0; step < 8; ++step)
    for (int rank = 0; rank < 2; ++rank) {
      trace.step(rank, step, step * 10 * ms, (step + 1) * 10 * ms);
      trace.span(rank, 0, "forward", step * 10 * ms, (step * 10 + 6) * ms);
      trace.collective(rank, 1, step, (step * 10 + 4 + rank) * ms, (step * 10 + 8) * ms);
    }
  return trace.text();
}

std::string with_event(const std::string& event) {
  auto text = sound_text();
  return text.insert(text.rfind("\n]}"), ",\n" + event);
}

RunReport analyze_text(const TemporaryFolder& folder, const std::string& text) {
  testing::write_text(folder / "trace.json", text);
  return analyze_run(folder / "trace.json");
}

TEST(BadInput, OfOneEventCostsThatEventAndIsNamedByItsOffset) {
  const TemporaryFolder folder;
  const auto sound = analyze_text(folder, sound_text());
  ASSERT_THAT(sound.metrics.warnings, SizeIs(0));
  const std::string span = R"({"ph":"X","cat":"forward","name":"f","pid":1,"tid":1000000,)";
  const std::string collective =
      R"({"ph":"X","cat":"communication","name":"b","pid":1,"tid":1000001,"ts":1,"dur":1,)";
  for (const auto& [event, why] : std::vector<std::pair<std::string, std::string>>{
           {span + "\"ts\":123456789012345678901234567890,\"dur\":1}", "ts is not a time that 64 bits hold"},
           {span + "\"ts\":1e400,\"dur\":1}", "ts is not a time that 64 bits hold"},
           {span + "\"ts\":1,\"dur\":-1}", "dur is negative"},
           {collective + "\"args\":{\"sequence\":18446744073709551616}}",
            "sequence is not a count of 64 bits"},
           {collective + "\"args\":{\"sequence\":4294967296}}", "sequence exceeds 32 bits"},
           {collective + "\"args\":{\"sequence\":1,\"bytes\":1e30}}", "bytes is not a count of 64 bits"},
           {R"({"ph":"X","cat":"forward","name":"f","pid":1e99,"tid":1,"ts":1,"dur":1})",
            "pid is not an integer"},
           {span + "\"ts\":1,\"dur\":1,\"args\":{\"host\":\"\xc3(\"}}", "UTF-8"}}) {
    const auto text = with_event(event);
    const auto report = analyze_text(folder, text);
    EXPECT_THAT(
        report.metrics.warnings,
        Contains(AllOf(HasSubstr("trace.json: 1 damaged event left out"),
                       HasSubstr("at byte " + std::to_string(text.find(event)) + ":"), HasSubstr(why))))
        << event;
    EXPECT_EQ(report.events, sound.events) << event;
    EXPECT_EQ(report.metrics.ranks[1].compute, sound.metrics.ranks[1].compute) << event;
  }
}

// For any names, the reports are valid JSON and UTF-8, and no text controls a terminal.
TEST(BadInput, InNamesDoesNotGetIntoReports) {
  const TemporaryFolder folder;
  TraceBuilder trace(1);
  const std::string name = "\u0007<b>&\"' \\ ünïcode \u202e\U0001F600";
  for (int step = 0; step < 3; ++step) {
    trace.step(0, step, step * ms, (step + 1) * ms);
    trace.collective(0, 1, step, step * ms, (step + 1) * ms, 1000, name);
  }
  const auto report = report_of({analyze_text(folder, trace.text())});
  EXPECT_EQ(testing::json_report(report)["runs"][0]["communication"]["collectives"][0]["name"], name);
  EXPECT_EQ(report_text(report, false).find('\a'), std::string::npos);
  EXPECT_EQ(report_html(report, "").find("<b>&\""), std::string::npos);
}

TEST(BadInput, ThatIsCutIsAnalyzedUpToTheCut) {
  const TemporaryFolder folder;
  const auto text = sound_text();
  const auto cut = text.substr(0, text.size() * 3 / 4);
  const auto report = analyze_text(folder, cut);
  EXPECT_THAT(report.metrics.warnings, Contains(AllOf(HasSubstr("trace.json"), HasSubstr("at byte"),
                                                      HasSubstr("everything before it was read"))));
  EXPECT_GE(report.metrics.window.steps.size(), 4U);
  testing::write_gzip(folder / "whole.gz", text);
  std::filesystem::resize_file(folder / "whole.gz", std::filesystem::file_size(folder / "whole.gz") - 20);
  EXPECT_THAT(analyze_run(folder / "whole.gz").metrics.warnings,
              Contains(HasSubstr("gzip data is truncated")));
}

TEST(BadInput, OfTwoRunsInOneFolderIsTold) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "run");
  testing::write_text(folder / "run" / "timeline.json", sound_text());
  testing::write_text(folder / "run" / "run.json",
                      R"({"ranks":1,"hosts":["elsewhere"],"global_batch":"many"})");
  const auto warnings = analyze_run(folder / "run").metrics.warnings;
  EXPECT_THAT(warnings, Contains(HasSubstr("run.json has 1 ranks, and the trace has 2")));
  EXPECT_THAT(warnings,
              Contains(HasSubstr(
                  "the trace has rank 1, but the run has only 1; the trace may belong to another run")));
  EXPECT_THAT(warnings,
              Contains(HasSubstr(
                  "rank 0 ran on node0 according to the trace and on elsewhere according to run.json")));
  EXPECT_THAT(warnings, Contains(HasSubstr("\"global_batch\" is not a number above 0")));
}

TEST(BadInput, OfWhichNothingCanBeSaidIsCorrupt) {
  const TemporaryFolder folder;
  for (const std::string& text :
       {std::string(), std::string("\0\0\0\0", 4), std::string("{\"traceEvents\":[{]}"),
        std::string("\x1f\x8b\x08\0garbage", 11), std::string("SQLite format 3\0", 16)})
    EXPECT_THROW(analyze_text(folder, text), CorruptInput) << text;
}

}  // namespace
}  // namespace farandole

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>

#include "analyzer/trace_builder.h"
#include "timeline/gzip/unzipped.h"
#include "timeline/synthetic_run.h"
#include "tools/large_run.h"

#include "farandole/analyzer/report/html/svg.h"
#include "farandole/analyzer/report/report.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/merge/run_recorders.h"
#include "farandole/timeline/merge/trace_merge.h"

namespace farandole {
namespace {

using ::testing::HasSubstr;
using testing::LargeRun;
using ::testing::Not;

std::string html_of(const LargeRun& run) {
  const TemporaryFolder folder;
  run.write(folder / "run", 5);
  return report_html(report_of({analyze_run(folder / "run")}), folder / "run" / "report.html");
}

// Every opened tag is closed in order; tags without content are ignored.
void expect_balanced(const std::string& html) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-zA-Z0-9]+)((?:[^<>\"]|\"[^\"]*\")*?)(/?)>");
  const auto body = html.substr(html.find("<body>"), html.find("<script>") - html.find("<body>"));
  for (std::sregex_iterator at(body.begin(), body.end(), tag), end; at != end; ++at) {
    const auto name = (*at)[2].str();
    if (name == "br" || !(*at)[4].str().empty()) continue;
    if ((*at)[1].str().empty()) {
      open.push_back(name);
    } else {
      ASSERT_FALSE(open.empty()) << name;
      ASSERT_EQ(open.back(), name);
      open.pop_back();
    }
  }
  EXPECT_THAT(open, ::testing::ElementsAre("body"));
}

// A link must have a target.
TEST(ReportHtml, LinksTheTraceThatThereIs) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "run" / "recorder");
  const SyntheticRun synthetic;
  for (int rank = 0; rank < synthetic.ranks; ++rank) synthetic.record(folder / "run" / "recorder", rank);
  const auto html = [&](const std::filesystem::path& path) {
    return report_html(report_of({analyze_run(path)}), folder / "report.html");
  };
  const auto recorders = html(folder / "run");
  EXPECT_THAT(recorders, Not(HasSubstr("timeline.json")));
  EXPECT_THAT(recorders,
              HasSubstr("<code>farandole timeline merge " + (folder / "run").string() + "</code>"));
  EXPECT_THAT(html(synthetic.file(folder / "run" / "recorder", 1)), HasSubstr("There is no merged trace"));
  merge_timelines(open_run(recorder_files(folder / "run"), {}).ranks, folder / "run" / "timeline.json.gz");
  EXPECT_THAT(html(folder / "run"), HasSubstr("href=\"run/timeline.json.gz\""));
  testing::write_text(folder / "run" / "timeline.json", unzipped(folder / "run" / "timeline.json.gz"));
  std::filesystem::remove(folder / "run" / "timeline.json.gz");
  EXPECT_THAT(html(folder / "run"), HasSubstr("href=\"run/timeline.json\""));
  EXPECT_THAT(html(folder / "run" / "timeline.json"), HasSubstr("href=\"run/timeline.json\""));
  std::filesystem::rename(folder / "run", folder / "lr#1 50%");
  EXPECT_THAT(html(folder / "lr#1 50%"),
              HasSubstr("href=\"lr%231%2050%25/timeline.json\">lr#1 50%/timeline.json<"));
}

TEST(ReportHtml, NeedsNothingFromElsewhere) {
  LargeRun run{.slow_rank = 1, .slow_ns = 5'000'000};
  const auto html = html_of(run);
  expect_balanced(html);
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("@import")));
  EXPECT_THAT(html, Not(HasSubstr("<link")));
  EXPECT_THAT(html, Not(HasSubstr("url(h")));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  for (const auto* part : {"Where the time goes", "What to do", "Efficiency", "Phases by rank", "Step times",
                           "Over the run", "Late ranks", "Communication", "Critical path", "Trace",
                           "href=\"timeline.json.gz\"", "Ranks wait for rank 1"})
    EXPECT_THAT(html, HasSubstr(part));
}

TEST(ReportHtml, StaysSmall) {
  EXPECT_LT(html_of(LargeRun{.ranks = 64, .steps = 300, .events = 10}).size(), 2'000'000U);
}

TEST(ReportHtml, EscapesWhatTheRunSays) {
  const TemporaryFolder folder;
  LargeRun().write(folder / "run", 5);
  std::ofstream(folder / "run" / "run.json")
      << R"({"ranks":8,"program":"<script>alert(1)</script> & \"x\"","device":"cpu\u0007"})";
  const auto html = report_html(report_of({analyze_run(folder / "run")}), "");
  expect_balanced(html);
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;x&quot;"));
  EXPECT_EQ(html::escaped("a\xff"
                          "b\xc3\xa9"),
            "a\xEF\xBF\xBD"
            "b\xc3\xa9");
}

TEST(Base64, IsThatOfTheRfc) {
  EXPECT_EQ(html::base64(""), "");
  EXPECT_EQ(html::base64("f"), "Zg==");
  EXPECT_EQ(html::base64("fo"), "Zm8=");
  EXPECT_EQ(html::base64("foo"), "Zm9v");
  EXPECT_EQ(html::base64("foobar"), "Zm9vYmFy");
}

TEST(Ticks, AreRoundAndInside) {
  EXPECT_EQ(html::ticks(0, 1, 5), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(html::ticks(3, 3, 5), std::vector<double>{3});
  EXPECT_EQ(html::powers(1, 1000, 10), (std::vector<double>{1, 10, 100, 1000}));
  EXPECT_EQ(html::number(1.50), "1.5");
  EXPECT_EQ(html::number(-0.001), "0");
}

// One cell for each column header, and an overlap also for steps without communication.
TEST(ReportHtml, OfSeveralRunsHasWholeTables) {
  const TemporaryFolder folder;
  std::vector<RunReport> runs;
  for (const int ranks : {2, 4}) {
    LargeRun run{.ranks = ranks};
    run.write(folder / std::to_string(ranks), 5);
    runs.push_back(analyze_run(folder / std::to_string(ranks)));
    runs.back().facts.global_batch = 32 * ranks;
  }
  for (auto& run : runs) run.metrics.steps[3] = {};
  const auto html = report_html(report_of(runs), "");
  expect_balanced(html);
  EXPECT_THAT(html, HasSubstr("overlap: share of communication during compute"));
  const auto scaling = html.substr(html.find("<h2>Scaling</h2>"));
  ASSERT_THAT(scaling, HasSubstr("compute scaling"));
  const auto table =
      scaling.substr(scaling.find("<table>"), scaling.find("</table>") - scaling.find("<table>"));
  std::size_t at = 0;
  const auto cells = [](const std::string& row, const std::string& tag) {
    std::size_t count = 0;
    for (auto found = row.find(tag); found != std::string::npos; found = row.find(tag, found + 1)) ++count;
    return count;
  };
  for (int row = 0; row < 3; ++row) {
    const auto end = table.find("</tr>", at);
    ASSERT_NE(end, std::string::npos);
    EXPECT_EQ(cells(table.substr(at, end - at), row == 0 ? "<th" : "<td"), 6U) << row;
    at = end + 5;
  }
}

}  // namespace
}  // namespace farandole

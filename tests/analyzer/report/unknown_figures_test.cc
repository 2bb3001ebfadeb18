// Unknown figures are reported as unknown and never as 0, in JSON, CSV, text and HTML.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/formats/horovod_file.h"
#include "analyzer/formats/kineto_file.h"
#include "analyzer/formats/nsys_file.h"
#include "analyzer/json_report.h"
#include "analyzer/trace_builder.h"

#include "farandole/analyzer/compare/comparison.h"
#include "farandole/analyzer/report/report.h"

namespace farandole {
namespace {

using nlohmann::json;
using namespace ::testing;
using testing::execute;
using testing::horovod_text;
using testing::nsys_tables;

// GPU ranks without host names.
class UnknownFigures : public ::testing::Test {
 protected:
  UnknownFigures() { execute(folder_ / "report.sqlite", nsys_tables(true)); }
  RunReport gpu_run() const { return analyze_run(folder_ / "report.sqlite"); }

  const TemporaryFolder folder_;
};

// Compute is not recorded. It must not be 0, and communication must not be all exposed.
TEST_F(UnknownFigures, AreAllThatDependOnComputeThatIsNotRecorded) {
  testing::write_text(folder_ / "timeline.json", horovod_text());
  testing::write_text(folder_ / "run.json", R"({"hosts":["a","a","b"]})");
  const auto report = report_of({analyze_run(folder_ / "timeline.json")});
  const auto run = testing::json_report(report)["runs"][0];
  const auto expect_unknown = [](const json& figure, const std::string& name) {
    ASSERT_TRUE(figure.is_object() && figure.contains("unknown")) << name << " is " << figure;
    EXPECT_THAT(figure["unknown"].get<std::string>(), HasSubstr("does not record what the ranks compute"));
  };
  EXPECT_GT(run["communication"]["fraction"], 0);
  expect_unknown(run["communication"]["exposed_fraction"], "exposed_fraction");
  for (const auto& [name, fraction] : run["phases"].items()) expect_unknown(fraction, name);
  for (const auto& table : {run["by_rank"], run["by_node"]})
    for (const auto& row : table) {
      EXPECT_GT(row["communication_s"], 0);
      for (const auto* name : {"overlap", "compute_s", "exposed_s", "other_s", "idle_s"})
        expect_unknown(row[name], name);
    }
  EXPECT_EQ(run["by_node"].size(), 2U);
  for (const auto& [name, seconds] : run["by_rank"][0]["phases_s"].items()) expect_unknown(seconds, name);
  EXPECT_THAT(failures(parse_conditions("exposed_fraction>0.3"), {&report.runs[0].metrics}, nullptr),
              ElementsAre(HasSubstr("exposed_fraction>0.3: unknown: a Horovod timeline")));
  EXPECT_THAT(report_text(report, false), Not(HasSubstr("Phases by rank")));
  EXPECT_THAT(report_html(report, ""), Not(HasSubstr("Phases by rank")));
}

// A program without phases, as recorded by --trace-mpi.
TEST_F(UnknownFigures, AreThoseOfAProgramOfWhichOnlyMpiIsRecorded) {
  constexpr auto one_ms = testing::TraceBuilder::ms;
  testing::TraceBuilder trace(2);
  for (int rank = 0; rank < 2; ++rank)
    for (int i = 0; i < 10; ++i)
      trace.span(rank, 0, "communication", i * 10 * one_ms, (i * 10 + 4) * one_ms, {{"bytes", 8}},
                 "MPI_Allreduce");
  trace.write_run(folder_ / "mpi", {{"ranks", 2}, {"device", "cpu"}});
  const auto report = report_of({analyze_run(folder_ / "mpi")});
  const auto run = testing::json_report(report)["runs"][0];
  EXPECT_GT(run["phases"]["wait"], 0.4);
  for (const auto* phase : {"data", "forward", "backward", "optimizer"})
    EXPECT_THAT(run["phases"][phase]["unknown"].get<std::string>(), HasSubstr("records no phases"));
  EXPECT_TRUE(run["communication"]["exposed_fraction"].contains("unknown"));
  for (const auto* name : {"compute_s", "exposed_s", "idle_s", "overlap"})
    EXPECT_TRUE(run["by_rank"][1][name].contains("unknown")) << name;
  EXPECT_THAT(report_text(report, false), ContainsRegex("all +– +– +– +– +42.6 +–"));
}

// Farandole records the updates of the parameters by itself. They are not all compute of a
// program without phases.
TEST_F(UnknownFigures, AreThoseOfAProgramThatRecordsNoPhases) {
  constexpr auto one_ms = testing::TraceBuilder::ms;
  testing::TraceBuilder trace(2);
  for (int rank = 0; rank < 2; ++rank)
    for (int i = 0; i < 10; ++i) {
      trace.collective(rank, 0, i, (i * 10 + 6) * one_ms, (i * 10 + 8) * one_ms);
      trace.span(rank, 0, "optimizer", (i * 10 + 8) * one_ms, (i * 10 + 9) * one_ms, {}, "update");
    }
  trace.write_run(folder_ / "session", {{"ranks", 2}, {"device", "cpu"}});
  const auto report = report_of({analyze_run(folder_ / "session")});
  EXPECT_THAT(report.runs[0].metrics.parallel_efficiency.unknown, HasSubstr("records no phases"));
  EXPECT_THAT(report.runs[0].metrics.overlap.unknown, HasSubstr("records no phases"));
}

TEST_F(UnknownFigures, AreThoseOfAProgramThatOnlyEvaluates) {
  constexpr auto one_ms = testing::TraceBuilder::ms;
  testing::TraceBuilder trace(1);
  for (int i = 0; i < 10; ++i) {
    trace.span(0, 0, "data", i * 10 * one_ms, (i * 10 + 2) * one_ms);
    trace.span(0, 0, "evaluation", (i * 10 + 2) * one_ms, (i * 10 + 10) * one_ms);
  }
  trace.write_run(folder_ / "evaluation", {{"ranks", 1}, {"device", "cpu"}});
  const auto report = report_of({analyze_run(folder_ / "evaluation")});
  EXPECT_THAT(report.runs[0].verdict,
              StartsWith("1 rank: the program evaluates and does not train, so useful compute is "
                         "unknown; 80.0 % is evaluation; 20.0 % is loading data"));
}

// One trace of two ranks cannot tell when the other rank arrives.
TEST_F(UnknownFigures, AreWaitingAndTransferOfOneRankOfTwo) {
  testing::KinetoFile file(0, 2);
  for (int step = 0; step < 12; ++step) {
    const double t = 1e6 + step * 1e5;
    file.cpu("user_annotation", "ProfilerStep#" + std::to_string(step), t, t + 1e5);
    file.gpu("kernel", "void gemm<float>(int)", 7, t, t + 3e4);
    file.gpu("kernel", "ncclDevKernel_AllReduce(x)", 20, t + 4e4, t + 6e4,
             {{"Collective name", "allreduce"},
              {"In msg nelems", 1'000'000},
              {"dtype", "Float"},
              {"Group size", 2},
              {"Process Group Name", "all"}});
  }
  testing::write_text(folder_ / "rank0.json", file.text());
  const auto report = report_of({analyze_run(folder_ / "rank0.json")});
  const auto run = testing::json_report(report)["runs"][0];
  EXPECT_TRUE(run["by_step"][0]["wait_s"].contains("unknown"));
  const auto& row = run["communication"]["collectives"][0];
  for (const auto* name : {"transfer_us", "transfer_p10_us", "transfer_p90_us"})
    EXPECT_TRUE(row[name].is_object()) << name << " is " << row[name];
}

// Steps and data loading are recorded; only these are known.
TEST_F(UnknownFigures, LeaveThoseThatAreKnown) {
  testing::KinetoFile file(0, 1, "gloo");
  for (int step = 0; step < 12; ++step) {
    const double t = 1e6 + step * 1e5;
    file.cpu("user_annotation", "ProfilerStep#" + std::to_string(step), t, t + 1e5);
    file.cpu("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t, t + 5e4);
  }
  testing::write_text(folder_ / "trace.json", file.text());
  const auto report = report_of({analyze_run(folder_ / "trace.json")});
  const auto run = testing::json_report(report)["runs"][0];
  EXPECT_NEAR(run["phases"]["data"].get<double>(), 0.5, 0.05);
  EXPECT_TRUE(run["phases"]["forward"].contains("unknown"));
  EXPECT_GT(run["by_rank"][0]["other_s"], 0.5);
  const auto& step = run["by_step"][0];
  EXPECT_TRUE(step["compute_s"].contains("unknown"));
  EXPECT_TRUE(step["overlap_s"].contains("unknown"));
  EXPECT_EQ(step["communication_s"], 0);
  EXPECT_EQ(step["wait_s"], 0);
  EXPECT_THAT(failures(parse_conditions("forward_ms>1,data_ms>100"), {&report.runs[0].metrics}, nullptr),
              ElementsAre(HasSubstr("forward_ms>1: unknown: the trace has neither")));
  EXPECT_THAT(report_text(report, false), HasSubstr("Phases by rank"));
}

}  // namespace
}  // namespace farandole

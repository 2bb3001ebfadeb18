// A program of which only MPI calls are recorded: its report has waiting, transfer and the last
// rank to arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/json_report.h"
#include "analyzer/trace_builder.h"

#include "farandole/analyzer/report/report.h"

namespace farandole {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::TraceBuilder;

class MpiCollectives : public ::testing::Test {
 protected:
  void call(int rank, const char* function, std::int64_t start, std::int64_t end, int ranks = 3) {
    trace_.span(rank, 0, "communication", start, end, {{"bytes", 8'000'000}, {"ranks", ranks}}, function);
  }
  // Rank 2 arrives 3 ms late in nine of ten; rank 0, in the other, 3 ms late.
  void ten_allreduces(int rank, int first = 0) {
    for (int i = first; i < 10; ++i) {
      const bool late = rank == (i == 4 ? 0 : 2);
      const std::int64_t begin = i * 20 * TraceBuilder::ms;
      call(rank, "MPI_Allreduce", begin + (late ? 3 : rank % 2) * TraceBuilder::ms,
           begin + 5 * TraceBuilder::ms);
    }
  }
  RunReport analyzed() {
    trace_.write_run(folder_ / "mpi", {{"ranks", 3}, {"device", "cpu"}});
    return analyze_run(folder_ / "mpi");
  }

  const TemporaryFolder folder_;
  TraceBuilder trace_{3};
};

TEST_F(MpiCollectives, TellWaitingFromTransferAndWhoIsLast) {
  for (int rank = 0; rank < 3; ++rank) {
    ten_allreduces(rank);
    call(rank, "MPI_Bcast", 300 * TraceBuilder::ms, 301 * TraceBuilder::ms,
         2);  // on some of the ranks, unknown which
  }
  const auto report = report_of({analyzed()});
  const auto run = testing::json_report(report)["runs"][0];
  ASSERT_EQ(run["communication"]["collectives"].size(), 1U);
  const auto row = run["communication"]["collectives"][0];
  EXPECT_EQ(row["name"], "MPI_Allreduce");
  EXPECT_EQ(row["operation"], "allreduce");
  EXPECT_EQ(row["count"], 10);
  EXPECT_DOUBLE_EQ(row["transfer_us"], 2000);
  EXPECT_NEAR(row["wait_us"], (9 * (3 + 2 + 0) + (0 + 2 + 3)) * 1000.0 / 30, 1);
  EXPECT_EQ(row["last_rank"], 2);
  EXPECT_DOUBLE_EQ(row["last_share"], 0.9);
  EXPECT_NEAR(row["late_us"], 2700, 1);
  EXPECT_DOUBLE_EQ(row["busbw_gbps"], 4 * 4.0 / 3);
  EXPECT_NEAR(run["communication"]["wait_fraction"], 50.0 / (3 * 301), 1e-6);
  EXPECT_THAT(run["verdict"].get<std::string>(),
              HasSubstr("Rank 2 is the last to arrive in 90.0 % of 10 calls of MPI_Allreduce, on average 2.7 "
                        "ms after the first rank."));
  EXPECT_THAT(report_text(report, false), ContainsRegex("busbw +last\n.*MPI_Allreduce.*rank 2\n"));
  EXPECT_THAT(report_html(report, ""), HasSubstr("<td>rank 2</td><td>90.0 %</td>"));
}

// A bounded recorder overwrites the oldest calls.
TEST_F(MpiCollectives, AreCountedFromTheEnd) {
  for (int rank = 0; rank < 3; ++rank) ten_allreduces(rank, rank == 1 ? 6 : 0);
  const auto run = analyzed();
  ASSERT_EQ(run.metrics.collectives.size(), 1U);
  EXPECT_EQ(run.metrics.collectives[0].count, 4U);
  EXPECT_EQ(run.metrics.collectives[0].last_rank, 2);
}

// A rank that was killed lacks the last calls, so counting from the end pairs different calls.
TEST_F(MpiCollectives, OfDifferentMomentsAreNotMatched) {
  for (int rank = 0; rank < 2; ++rank) ten_allreduces(rank);
  for (int i = 0; i < 7; ++i)
    call(2, "MPI_Allreduce", i * 20 * TraceBuilder::ms, i * 20 * TraceBuilder::ms + 5 * TraceBuilder::ms);
  const auto run = analyzed();
  EXPECT_TRUE(run.metrics.collectives.empty());
  EXPECT_THAT(run.metrics.warnings,
              ::testing::Contains(HasSubstr("27 collectives lack a rank of their communicator")));
}

TEST_F(MpiCollectives, OfRanksThatArriveTogetherHaveNoLast) {
  trace_.other_data()["clock_residual_us"] = {0.0, 2000.0, 2000.0};
  for (int rank = 0; rank < 3; ++rank) ten_allreduces(rank);
  const auto run = analyzed();
  ASSERT_EQ(run.metrics.collectives.size(), 1U);
  EXPECT_FALSE(run.metrics.collectives[0].last_rank);
  EXPECT_THAT(run.metrics.collectives[0].late_us.unknown, HasSubstr("clocks can tell"));
}

}  // namespace
}  // namespace farandole

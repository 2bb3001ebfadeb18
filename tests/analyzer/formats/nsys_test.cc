// Exports of Nsight Systems with known answers: sound, compressed and damaged files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/formats/nsys_file.h"
#include "analyzer/trace_builder.h"

#include "farandole/analyzer/report/report.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

using testing::bytes_of;
using ::testing::Contains;
using testing::execute;
using ::testing::HasSubstr;
using testing::nsys_tables;
using ::testing::SizeIs;

TEST(Nsys, IsReadFromItsSqliteExport) {
  const TemporaryFolder folder;
  execute(folder / "report.sqlite", nsys_tables(true));
  const auto run = analyze_run(folder / "report.sqlite");
  const auto& metrics = run.metrics;
  ASSERT_THAT(metrics.ranks, SizeIs(2));
  EXPECT_THAT(metrics.warnings, Contains(HasSubstr("do not contain ranks")));
  EXPECT_EQ(metrics.ranks[0].gpu->window, 980'000'000);
  EXPECT_EQ(metrics.ranks[0].gpu->compute, 500'000'000);
  EXPECT_EQ(metrics.ranks[0].gpu->communication_only, 200'000'000);
  EXPECT_EQ(metrics.ranks[0].gpu->memcpy_only, 10 * 5'000'000);
  EXPECT_EQ(metrics.ranks[0].overlap, 200'000'000);
  EXPECT_EQ(metrics.ranks[1].overlap, 100'000'000);
  EXPECT_THAT(metrics.window.steps, SizeIs(10));
  ASSERT_THAT(metrics.collectives, SizeIs(1));
  EXPECT_EQ(metrics.collectives[0].operation, "allreduce");
  EXPECT_EQ(metrics.collectives[0].count, 10U);
  EXPECT_DOUBLE_EQ(metrics.collectives[0].wait_us.value.value(), 5'000);
  EXPECT_EQ(metrics.ranks[0].phases[static_cast<std::size_t>(Phase::forward)], 245'000'000);
}

TEST(Nsys, CountsCudaGraphsThatAreRecordedWhole) {
  const TemporaryFolder folder;
  execute(folder / "report.sqlite",
          "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start INT, end INT, deviceId INT, streamId INT, "
          "globalPid INT, "
          "graphId INT);"
          "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE "
          "VALUES(1000,4000,0,7,1,5),(6000,9000,0,7,1,5),(0,0,0,7,1,5);");
  const auto run = analyze_run(folder / "report.sqlite");
  ASSERT_THAT(run.metrics.ranks, SizeIs(1));
  EXPECT_EQ(run.metrics.ranks[0].gpu->window, 8000);
  EXPECT_EQ(run.metrics.ranks[0].gpu->compute, 6000);
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("2 CUDA graphs are recorded as a whole")));
}

TEST(Nsys, OfSeveralFilesAndBadOnes) {
  const TemporaryFolder folder;
  execute(folder / "a.sqlite", nsys_tables(false));
  execute(folder / "b.sqlite", "CREATE TABLE unrelated(x INT);");
  testing::write_text(folder / "c.sqlite", std::string("SQLite format 3\0 and then nonsense", 34));
  const auto run = analyze_run(folder.path());
  EXPECT_THAT(run.metrics.ranks, SizeIs(2));
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("b.sqlite has neither kernels nor NVTX ranges")));
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("c.sqlite")));
  EXPECT_THROW(analyze_run(folder / "b.sqlite"), CorruptInput);
  EXPECT_THROW(analyze_run(folder / "c.sqlite"), CorruptInput);
}

// What is read before the damage shows is left out with the rest,
// and no other file's ranks are mixed with it.
TEST(Nsys, LeavesAFileOutWholeThatIsDamagedBehindItsKernels) {
  const TemporaryFolder folder;
  execute(folder / "a.sqlite", nsys_tables(true));
  execute(folder / "b.sqlite", nsys_tables(true));
  const auto sound = analyze_run(folder / "b.sqlite").metrics;
  auto bytes = bytes_of(folder / "a.sqlite");
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open((folder / "a.sqlite").c_str(), &database), SQLITE_OK);
  std::int64_t page = 0;
  const auto first = [](void* into, int, char** values, char**) {
    *static_cast<std::int64_t*>(into) = std::atoll(values[0]);
    return 0;
  };
  ASSERT_EQ(sqlite3_exec(database, "SELECT rootpage FROM sqlite_master WHERE name='NVTX_EVENTS'", first,
                         &page, nullptr),
            SQLITE_OK);
  sqlite3_close(database);
  bytes.replace(static_cast<std::size_t>(page - 1) * 4096, 64, std::string(64, '\x7f'));
  testing::write_text(folder / "a.sqlite", bytes);
  const auto run = analyze_run(folder.path());
  EXPECT_THAT(run.metrics.warnings, Contains(HasSubstr("a.sqlite: database disk image is malformed")));
  ASSERT_THAT(run.metrics.ranks, SizeIs(2));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(run.metrics.ranks[i].compute, sound.ranks[i].compute);
    EXPECT_EQ(run.metrics.ranks[i].communication, sound.ranks[i].communication);
  }
}

TEST(Nsys, IsReadFromAGzippedExport) {
  const TemporaryFolder folder;
  execute(folder / "report.sqlite", nsys_tables(true));
  const auto plain = analyze_run(folder / "report.sqlite").metrics;
  const auto bytes = bytes_of(folder / "report.sqlite");
  std::filesystem::remove(folder / "report.sqlite");
  testing::write_gzip(folder / "report.sqlite.gz", bytes);
  for (const auto& path : {folder / "report.sqlite.gz", folder.path()}) {  // folders find it, too
    const auto metrics = analyze_run(path).metrics;
    ASSERT_THAT(metrics.ranks, SizeIs(2));
    EXPECT_EQ(metrics.ranks[1].communication, plain.ranks[1].communication);
    EXPECT_EQ(metrics.window.length(), plain.window.length());
  }
  const auto packed = std::filesystem::file_size(folder / "report.sqlite.gz");
  std::filesystem::resize_file(folder / "report.sqlite.gz", packed / 2);
  try {
    analyze_run(folder / "report.sqlite.gz");
    FAIL() << "half of the file is missing";
  } catch (const CorruptInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("report.sqlite.gz: the gzip data is truncated"));
  }
}

TEST(Nsys, IsNotUnpackedUntilTheDiskIsFull) {
  const TemporaryFolder folder;
  testing::write_gzip(folder / "report.sqlite.gz", "SQLite format 3" + std::string(80 << 20, '\0'));
  try {
    analyze_run(folder / "report.sqlite.gz");
    FAIL() << "80 MB of zeros";
  } catch (const CorruptInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("report.sqlite.gz: it unpacks to more than 64 MiB"));
  }
}

}  // namespace
}  // namespace farandole

// Exports of Nsight Systems with known answers: sound, compressed and damaged files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/formats/nsys_file.h"
#include "analyzer/trace_builder.h"
#include "error_message.h"

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/report/report.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

using testing::contents_of;
using namespace ::testing;
using testing::execute;
using testing::nsys_tables;

TEST(Nsys, IsReadFromItsSqliteExport) {
  const TemporaryFolder folder;
  execute(folder / "report.sqlite", nsys_tables(true));
  const auto run = analyze_run(folder / "report.sqlite");
  const auto& metrics = run.metrics;
  ASSERT_THAT(metrics.ranks, SizeIs(2));
  EXPECT_THAT(metrics.warnings, Contains(HasSubstr("does not contain ranks")));
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

TEST(Nsys, GivesWorkItsLaunchPhaseRangeAndBytes) {
  const TemporaryFolder folder;
  execute(
      folder / "report.sqlite",
      "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);"
      "INSERT INTO StringIds VALUES(1,'gemm'),(2,'cudaLaunchKernel_v7000'),(3,'cudaMemcpyAsync_v3020'),"
      "(4,'cudaEventQuery_v3020');"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, end INT, deviceId INT, streamId INT, globalPid INT, "
      "demangledName INT, correlationId INT);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(20000,30000,0,7,16777216,1,11),"
      "(31000,40000,0,7,16777216,1,12);"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INT, end INT, deviceId INT, streamId INT, globalPid INT, "
      "bytes INT, copyKind INT, correlationId INT);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES(60000,61000,0,7,16777216,5000,1,13);"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INT, end INT, globalTid INT, correlationId INT, nameId "
      "INT);"
      "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES(10000,11000,16777217,11,2),(15000,16000,16777217,12,2),"
      "(50000,51000,16777217,13,3),(100,200,16777217,11,4);"
      "CREATE TABLE NVTX_EVENTS(start INT, end INT, text TEXT, textId INT, globalTid INT);"
      "INSERT INTO NVTX_EVENTS VALUES(9000,52000,'forward',NULL,16777217),(9500,12000,'attention',NULL,"
      "16777217);");
  const auto metrics = analyze_run(folder / "report.sqlite").metrics;
  ASSERT_THAT(metrics.kernels, SizeIs(1));
  const auto& gemm = metrics.kernels[0];
  EXPECT_EQ(gemm.calls, 2U);
  EXPECT_DOUBLE_EQ(gemm.by_phase[static_cast<std::size_t>(Phase::forward)], 19'000);
  EXPECT_THAT(gemm.by_range, ElementsAre(std::pair(std::string("attention"), 10'000.0)));
  ASSERT_THAT(metrics.copies, SizeIs(1));
  EXPECT_EQ(metrics.copies[0].kind, "host to device");
  EXPECT_DOUBLE_EQ(metrics.copies[0].bytes, 5000);
  ASSERT_THAT(metrics.ranks, SizeIs(1));
  EXPECT_THAT(metrics.ranks[0].gpu->idle_causes, ElementsAre(20'000, 0, 0, 0, 1'000, 0));
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
  auto bytes = contents_of(folder / "a.sqlite");
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
  const auto bytes = contents_of(folder / "report.sqlite");
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
  EXPECT_THAT(message_of<CorruptInput>([&] { analyze_run(folder / "report.sqlite.gz"); }),
              HasSubstr("report.sqlite.gz: the gzip data is truncated"));
}

TEST(Nsys, IsNotUnpackedUntilTheDiskIsFull) {
  const TemporaryFolder folder;
  testing::write_gzip(folder / "report.sqlite.gz", "SQLite format 3" + std::string(80 << 20, '\0'));
  EXPECT_THAT(message_of<CorruptInput>([&] { analyze_run(folder / "report.sqlite.gz"); }),
              HasSubstr("report.sqlite.gz: it unpacks to more than 64 MiB"));
}

// Two processes of which the second begins 5 us earlier, so that its events come first.
std::string two_processes(std::int64_t first_pid, std::int64_t second_pid, int first_device,
                          int second_device) {
  auto sql =
      nsys_tables(false) + "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL; DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY;";
  const auto kernel = [&](std::int64_t pid, int device, int start, int end) {
    sql += "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(" + std::to_string(start) + "," +
           std::to_string(end) + "," + std::to_string(device) + ",7," + std::to_string(pid * 0x1000000) +
           ",1);";
  };
  kernel(first_pid, first_device, 10'000, 20'000);
  kernel(second_pid, second_device, 5'000, 25'000);
  return sql;
}

TEST(Nsys, RanksAreThoseOfMpiOrElseInTheOrderOfGpusAndProcesses) {
  const TemporaryFolder folder;
  const auto processes = [&](const std::string& sql) {
    const auto file = folder / "report.sqlite";
    std::filesystem::remove(file);
    execute(file, sql);
    std::vector<std::string> found;
    for (const auto& rank : read_run(file).ranks) found.push_back(rank.process);
    return found;
  };
  EXPECT_THAT(processes(two_processes(100, 200, 1, 0)),
              ElementsAre("process 200 on GPU 0", "process 100 on GPU 1"));
  EXPECT_THAT(processes(two_processes(100, 200, 0, 0)),
              ElementsAre("process 100 on GPU 0", "process 200 on GPU 0"));
  EXPECT_THAT(processes(two_processes(200, 100, 0, 0)),
              ElementsAre("process 100 on GPU 0", "process 200 on GPU 0"));
  // Each process calls its only GPU 0.
  EXPECT_THAT(processes(two_processes(100, 200, 0, 0) +
                        "CREATE TABLE TARGET_INFO_CUDA_DEVICE(gpuId INT, cudaId INT, pid INT);"
                        "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES(3,0,100),(2,0,200);"),
              ElementsAre("process 200 on GPU 2", "process 100 on GPU 3"));
  EXPECT_THAT(processes(two_processes(100, 200, 0, 1) +
                        "CREATE TABLE MPI_RANKS(globalTid INT, rank INT); INSERT INTO MPI_RANKS VALUES(" +
                        std::to_string(100LL * 0x1000000 + 7) + ",1),(" +
                        std::to_string(200LL * 0x1000000 + 7) + ",0);"),
              ElementsAre("process 200 on GPU 1", "process 100 on GPU 0"));
}

TEST(Nsys, LeavesOutWorkWithoutATime) {
  const TemporaryFolder folder;
  const auto file = folder / "report.sqlite";
  execute(file, two_processes(100, 200, 0, 1) +
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(NULL,30000,0,7,1677721600,1),"
                    "(0,0,0,7,1677721600,1);");
  const auto metrics = analyze_run(file).metrics;
  EXPECT_EQ(metrics.window.length(), 20'000);
  EXPECT_THAT(metrics.warnings, Contains(HasSubstr("2 kernels and copies without a time are left out")));
}

}  // namespace
}  // namespace farandole

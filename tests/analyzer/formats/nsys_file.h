// Writes SQLite files in the format of Nsight Systems' exports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <sqlite3.h>
#include <string>

namespace farandole::testing {

inline std::string contents_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline void execute(const std::filesystem::path& file, const std::string& sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &database), SQLITE_OK);
  char* error = nullptr;
  // One transaction that does not wait for the disk.
  const auto all = "PRAGMA synchronous=OFF; BEGIN;" + sql + ";COMMIT;";
  EXPECT_EQ(sqlite3_exec(database, all.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(database);
}

// The tables that nsys export writes, for two processes. Units: nanoseconds.
inline std::string nsys_tables(bool with_ranges) {
  std::string sql =
      "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);"
      "INSERT INTO StringIds VALUES(1,'void "
      "gemm<float>(int)'),(2,'ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)'),(3,'forward');"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, end INT, deviceId INT, streamId INT, globalPid "
      "INT, demangledName INT);"
      "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INT, end INT, deviceId INT, streamId INT, globalPid "
      "INT, bytes INT);";
  if (with_ranges)
    sql += "CREATE TABLE NVTX_EVENTS(start INT, end INT, text TEXT, textId INT, globalTid INT);";
  const auto insert = [&](const std::string& table, const std::string& values) {
    sql += "INSERT INTO " + table + " VALUES(" + values + ");";
  };
  for (std::int64_t process = 1; process <= 2; ++process) {
    const auto global = std::to_string(process * 0x1000000);
    for (std::int64_t step = 0; step < 10; ++step) {
      const auto at = [&](std::int64_t ms) { return std::to_string((step * 100 + ms) * 1'000'000) + ","; };
      const auto place = std::to_string(process - 1) + ",7," + global + ",";
      insert("CUPTI_ACTIVITY_KIND_KERNEL", at(10) + at(60) + place + "1");
      insert("CUPTI_ACTIVITY_KIND_KERNEL",
             at(process == 1 ? 40 : 50) + at(80) + std::to_string(process - 1) + ",20," + global + ",2");
      insert("CUPTI_ACTIVITY_KIND_MEMCPY", at(85) + at(90) + place + "1024");
      if (!with_ranges) continue;
      const auto thread = std::to_string(process * 0x1000000 + 77);
      insert("NVTX_EVENTS", at(0) + at(100) + "'Step " + std::to_string(step) + "',NULL," + thread);
      insert("NVTX_EVENTS", at(5) + at(30) + "NULL,3," + thread);
    }
  }
  return sql;
}

}  // namespace farandole::testing

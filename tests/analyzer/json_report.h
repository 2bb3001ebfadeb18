// The JSON report of a test. `analyzer.report-schema` checks all of them against docs/report.schema.json.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "farandole/analyzer/report/report.h"

namespace farandole::testing {

// If FARANDOLE_REPORTS names a file, the report is also written there, as a line with the name of the test.
inline nlohmann::json json_report(const Report& report) {
  auto json = nlohmann::json::parse(report_json(report));
  if (const char* path = std::getenv("FARANDOLE_REPORTS")) {
    static std::ofstream file(path);
    const auto& test = *::testing::UnitTest::GetInstance()->current_test_info();
    file << nlohmann::json{{"test", test.name()}, {"suite", test.test_suite_name()}, {"report", json}}.dump()
         << "\n";
  }
  return json;
}

// What the JSON report has about the run.
inline nlohmann::json json_of_run(const RunReport& run) {
  return json_report(report_of({run}))["runs"][0];
}

}  // namespace farandole::testing

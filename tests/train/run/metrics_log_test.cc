#include "farandole/train/run/metrics_log.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

std::vector<nlohmann::json> lines(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::vector<nlohmann::json> result;
  for (std::string line; std::getline(stream, line);) result.push_back(nlohmann::json::parse(line));
  return result;
}

TEST(MetricsLog, WritesTheKeysThatScriptsRelyOn) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricsLog log(file, 0);
  log.write(MetricsLog::Training{10, 0, 2.5, 0.01, 1000.0, 5.0});
  log.write(MetricsLog::Evaluation{10, 1, 2.25, 0.5});
  log.write(MetricsLog::Evaluation{10, 1, 2.25, std::nullopt});
  const auto read = lines(file);
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0],
            nlohmann::json::parse(
                R"({"step":10,"epoch":0,"loss":2.5,"lr":0.01,"samples_per_s":1000.0,"step_ms":5.0})"));
  EXPECT_EQ(read[1], nlohmann::json::parse(R"({"step":10,"epoch":1,"eval_loss":2.25,"eval_accuracy":0.5})"));
  EXPECT_FALSE(read[2].contains("eval_accuracy"));
}

TEST(MetricsLog, AResumedRunDropsWhatItWillDoAgain) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  {
    MetricsLog log(file, 0);
    for (int step = 1; step <= 5; ++step) log.write(MetricsLog::Training{step, 0, 1, 1, 1, 1});
  }
  std::ofstream(file, std::ios::app) << "{\"step\":\"x\"}\n{\"step\":null}\n{}\n[1]\n"  // not ours
                                     << "{\"step\":6,\"lo";                             // cut by a kill
  {
    MetricsLog log(file, 3);
    log.write(MetricsLog::Training{4, 0, 7, 1, 1, 1});
  }
  const auto read = lines(file);
  ASSERT_EQ(read.size(), 4u);
  EXPECT_EQ(read[3]["step"], 4);
  EXPECT_EQ(read[3]["loss"], 7);
}

TEST(MetricsLog, AFolderThatIsNotThereIsNamed) {
  try {
    MetricsLog log("/nowhere/metrics.jsonl", 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/metrics.jsonl"), std::string::npos);
  }
}

}  // namespace
}  // namespace farandole

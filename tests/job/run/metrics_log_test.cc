#include "farandole/job/run/metrics_log.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sstream>
#include <sys/resource.h>

#include "error_message.h"
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
  log.write(MetricsLog::Training{10, 0, {{"loss", 2.5}}, 0.01, 1000.0, 5.0});
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
    for (int step = 1; step <= 5; ++step) log.write(MetricsLog::Training{step, 0, {{"loss", 1}}, 1, 1, 1});
  }
  std::ofstream(file, std::ios::app) << "{\"step\":\"x\"}\n{\"step\":null}\n{}\n[1]\n"  // not ours
                                     << "{\"step\":6,\"lo";                             // cut by a kill
  {
    MetricsLog log(file, 3);
    log.write(MetricsLog::Training{4, 0, {{"loss", 7}}, 1, 1, 1});
  }
  const auto read = lines(file);
  ASSERT_EQ(read.size(), 4u);
  EXPECT_EQ(read[3]["step"], 4);
  EXPECT_EQ(read[3]["loss"], 7);
}

// The limit on file sizes cuts a write off as a full disk does.
TEST(MetricsLog, GoesOnWhenTheDiskHasRoomAgain) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricsLog log(file, 0);
  const auto write = [&](int step) { log.write(MetricsLog::Training{step, 0, {{"loss", 1}}, 1, 1, 1}); };
  write(1);
  rlimit unlimited{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  auto* const old_handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{std::filesystem::file_size(file) + 20, unlimited.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  std::ostringstream warnings;
  const auto old_logger = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(warnings)));
  for (int step = 2; step <= 4; ++step) write(step);
  ::setrlimit(RLIMIT_FSIZE, &unlimited);
  for (int step = 5; step <= 6; ++step) write(step);
  spdlog::set_default_logger(old_logger);
  ::signal(SIGXFSZ, old_handler);
  const auto read = lines(file);
  ASSERT_EQ(read.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(read[i]["step"], (std::vector{1, 5, 6})[i]);
  EXPECT_EQ(std::ranges::count(warnings.str(), '\n'), 2) << warnings.str();
  EXPECT_THAT(warnings.str(),
              testing::AllOf(testing::HasSubstr(file.string() + ": File too large; from step 2 on"),
                             testing::HasSubstr("is written again from step 5 on; 3 lines are lost")));
}

TEST(MetricsLog, AFolderThatIsNotThereIsNamed) {
  EXPECT_THAT(message_of<Error>([&] { MetricsLog log("/proc/nowhere/metrics.jsonl", 0); }),
              testing::HasSubstr("/proc/nowhere/metrics.jsonl"));
}

}  // namespace
}  // namespace farandole

#include "farandole/job/run/run_directory.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_message.h"
#include <nlohmann/json.hpp>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/run_timeline.h"

namespace farandole {
namespace {

RunFacts facts() {
  RunFacts result{.ranks = 2};
  result.hosts = {"node1", "node2"};
  result.program = "farandole-train --data \"x\"";
  result.global_batch = 64;
  result.parameters = 21840;
  result.device = "cpu";
  result.threads = result.cores = 1;
  result.memory_mib = 4096;
  result.config = R"({"model":{"name":"mnist"}})";
  result.versions = {{"libtorch", "2.11.0"}};
  return result;
}

nlohmann::json read(const RunDirectory& run) {
  std::ifstream stream(run.run_json());
  return nlohmann::json::parse(stream);
}

TEST(RunDirectory, RunJsonHasTheKeysThatScriptsRelyOn) {
  const TemporaryFolder folder;
  RunDirectory run(folder.path() / "a" / "b");
  run.started(facts(), 0);
  auto json = read(run);
  for (const char* key : {"ranks", "hosts", "device", "program", "started", "restarts", "global_batch",
                          "versions", "parameters", "config", "bucket_mb", "threads", "cores", "memory_mib"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_FALSE(json.contains("exit_code"));
  EXPECT_EQ(json["restarts"], 0);
  run.ended(75);
  json = read(run);
  EXPECT_EQ(json["exit_code"], 75);
  EXPECT_GE(json["ended"], json["started"]);
}

TEST(RunDirectory, CountsRestartsAndOutlivesADamagedFile) {
  const TemporaryFolder folder;
  RunDirectory run(folder.path());
  run.ended(1);  // nothing was started: nothing is written
  EXPECT_FALSE(std::filesystem::exists(run.run_json()));
  run.started(facts(), 0);
  run.started(facts(), 0);
  EXPECT_EQ(read(run)["restarts"], 1);
  std::ofstream(run.run_json()) << "{\"restarts\": ";
  run.started(facts(), 0);
  EXPECT_EQ(read(run)["restarts"], 0);
}

TEST(RunDirectory, CountsNoRestartOfARunThatHasEndedWell) {
  const TemporaryFolder folder;
  RunDirectory run(folder.path());
  run.started(facts(), 0);
  run.started(facts(), 0);
  run.ended(0);
  run.started(facts(), 40);  // a training that goes on
  EXPECT_EQ(read(run)["restarts"], 2);
  run.ended(0);
  run.started(facts(), 0);
  EXPECT_EQ(read(run)["restarts"], 0);
  EXPECT_EQ(read(run)["lost_steps"], 0);
}

// With the default options, a start can be killed before its second line of metrics.
TEST(RunDirectory, KnowsTheWorkThatAKilledStartHasLost) {
  const TemporaryFolder folder;
  EXPECT_FALSE(RunDirectory(folder.path()).started(facts(), 0));
  const auto before = real_time_ns();
  Timeline(run_timeline(folder.path())).set_step(17);
  RunDirectory second(folder.path());
  const auto lost = second.started(facts(), 10);
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->steps, 7);
  EXPECT_GE(lost->begin_ns, before);
  EXPECT_GE(lost->end_ns, lost->begin_ns);
  EXPECT_EQ(read(second)["lost_steps"], 7);
}

TEST(RunDirectory, TellsOfAnEarlierStartThatHasLostNothing) {
  const TemporaryFolder folder;
  RunDirectory first(folder.path());
  first.started(facts(), 0);
  first.ended(75);
  const auto again = RunDirectory(folder.path()).started(facts(), 0);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->steps, 0);
  EXPECT_GT(again->end_ns, 0);
  first.ended(0);
  EXPECT_FALSE(RunDirectory(folder.path()).started(facts(), 0)) << "it was done";
}

// As on a full disk.
TEST(RunDirectory, HowItEndedDoesNotDependOnTheFileThatTells) {
  const TemporaryFolder folder;
  RunDirectory run(folder.path());
  run.started(facts(), 0);
  std::filesystem::remove(run.run_json());
  std::filesystem::create_directories(run.run_json() / "in the way");
  EXPECT_NO_THROW(run.ended(75));
}

TEST(RunDirectory, AFileInItsWayIsNamed) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_THAT(message_of<UserError>([&] { RunDirectory run(folder.path() / "file" / "run"); }),
              testing::HasSubstr("--run-dir"));
}

}  // namespace
}  // namespace farandole

#include "farandole/base/run/run_json.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <tuple>

#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct RunJson : testing::Test {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "run.json";
};

TEST_F(RunJson, IsReadAsItWasWritten) {
  RunFacts written{.ranks = 2};
  written.hosts = {"node1", "node2"};
  written.gpus = {"GPU-a", "GPU-b"};
  written.gpu_topology = {"a GPU at 0000:1b:00", "a GPU at 0000:3d:00"};
  written.device = "cpu";
  written.program = "farandole-train --data \"x\"";
  written.started = "2026-11-22T18:29:39Z";
  written.ended = "2026-11-22T18:30:08Z";
  written.exit_code = 75;
  written.restarts = 1;
  written.parameters = 21840;
  written.global_batch = 64;
  written.bucket_mb = 12.5;
  written.threads = 3;
  written.cores = 6;
  written.config = R"({"compression":"bfloat16","model":{"name":"mnist"}})";
  written.versions = {{"libtorch", "2.11.0"}, {"mpi", "4.1"}};
  written.model_flops = 1.5e12;
  written.model_flops_from = "counted";
  written.peak_tflops = 989.4;
  written.peak_from = "a card, bfloat16";
  written.tflops = 400;
  written.mfu = 0.25;
  written.gpu_memory_by_owner_mib = {{"parameters", 464.5}, {"activations", 100}, {"peak", 564.5}};
  write_run_facts(file, written);
  const auto read = read_run_facts(file);
  EXPECT_TRUE(read.found);
  EXPECT_TRUE(read.warnings.empty());
  const auto fields = [](const RunFacts& facts) {
    return std::tie(facts.ranks, facts.hosts, facts.gpus, facts.gpu_topology, facts.device, facts.program,
                    facts.started, facts.ended, facts.exit_code, facts.restarts, facts.parameters,
                    facts.global_batch, facts.bucket_mb, facts.threads, facts.cores, facts.config,
                    facts.versions, facts.model_flops, facts.model_flops_from, facts.peak_tflops,
                    facts.peak_from, facts.tflops, facts.mfu, facts.gpu_memory_by_owner_mib);
  };
  EXPECT_TRUE(fields(read) == fields(written));
  std::ifstream stream(file);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  EXPECT_THAT(text, HasSubstr("\"global_batch\": 64,"));  // scripts read an integer
}

TEST_F(RunJson, HasOnlyWhatIsKnown) {
  EXPECT_FALSE(read_run_facts(file).found);
  write_run_facts(file, {});
  const auto facts = read_run_facts(file);
  EXPECT_TRUE(facts.found);
  EXPECT_TRUE(facts.warnings.empty());
  EXPECT_FALSE(facts.ranks || facts.bucket_mb || facts.ended || facts.exit_code);
  EXPECT_TRUE(facts.hosts.empty() && facts.versions.empty() && facts.config.empty());
}

TEST_F(RunJson, LeavesOutUnknownFieldsAndWarnsOfWrongOnes) {
  std::ofstream(file) << R"({"ranks": "two", "weather": {"ranks": 3}, "cores": 4, "bucket_mb": "auto"})";
  const auto facts = read_run_facts(file);
  EXPECT_TRUE(facts.found);
  EXPECT_FALSE(facts.ranks);
  EXPECT_EQ(facts.cores, 4);
  EXPECT_THAT(facts.warnings, ElementsAre(HasSubstr("\"ranks\" is not an integer")));
  std::ofstream(file) << "{\"ranks\": ";
  EXPECT_FALSE(read_run_facts(file).found);
  EXPECT_THAT(read_run_facts(file).warnings, ElementsAre(HasSubstr("is damaged")));
}

TEST_F(RunJson, StandsTextsThatAreNoUtf8AndAFifoInItsPlace) {
  RunFacts written;
  written.program = "train --data \xff\xfe";
  write_run_facts(file, written);
  EXPECT_EQ(read_run_facts(file).program, "train --data \uFFFD\uFFFD");
  std::filesystem::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  const auto read = read_run_facts(file);
  EXPECT_FALSE(read.found);
  EXPECT_THAT(read.warnings, ElementsAre(HasSubstr("run.json cannot be read: it is not a regular file")));
}

}  // namespace
}  // namespace farandole

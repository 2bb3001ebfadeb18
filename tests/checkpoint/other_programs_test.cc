// Reads a checkpoint with other programs: h5py, h5dump and `farandole checkpoint`.
#include <cmath>
#include <cstdlib>
#include <gmock/gmock.h>
#include <stdio.h>
#include <sys/wait.h>

#include "checkpoint/checkpoint_fixtures.h"
#include <nlohmann/json.hpp>

#include "farandole/checkpoint/checkpoint_file.h"
#include "farandole/checkpoint/checkpoint_store.h"

namespace farandole {
namespace {

using testing::HasSubstr;

struct Result {
  int exit_code;
  std::string output;  // stdout and stderr
};

Result run(const std::string& command) {
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string output;
  char buffer[4096];
  for (std::size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, got);
  const int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status, output};
}

TEST(OtherPrograms, ReadWhatWeWrite) {
  const TemporaryFolder folder;
  const auto snapshot = random_snapshot(1200, 51);
  write_checkpoint(folder / "a.h5", snapshot);
  nlohmann::json expected;
  expected["attributes"] = {{"format_version", schema::format_version},
                            {"step", snapshot.step},
                            {"epoch", snapshot.epoch},
                            {"world_size", snapshot.world_size},
                            {"score", snapshot.score},
                            {"best_score", snapshot.best_score},
                            {"best_step", snapshot.best_step}};
  expected["config"] = snapshot.config;
  for (std::size_t i = 0; i < snapshot.arrays.size(); ++i) {
    const auto& array = snapshot.arrays[i];
    const auto raw = std::to_string(i) + ".raw";
    write_contents(folder / raw, {reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size()});
    expected["arrays"].push_back(
        {{"path", array.path}, {"dtype", name_of(array.dtype)}, {"shape", array.shape}, {"raw", raw}});
  }
  write_contents(folder / "expected.json", expected.dump());
  const auto script = std::filesystem::path(FARANDOLE_SOURCE) / "tests/checkpoint/read_with_h5py.py";
  const auto result = run("/usr/bin/python3 " + script.string() + " " + folder.path().string());
  if (result.exit_code == 77) GTEST_SKIP() << result.output;
  EXPECT_EQ(result.exit_code, 0) << result.output;
}

class CheckpointTool : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("FARANDOLE_BIN");
    tool_ = std::string(folder != nullptr ? folder : "bin") + "/farandole-checkpoint";
    if (!std::filesystem::exists(tool_)) GTEST_SKIP() << tool_ << " is not built";
    std::filesystem::create_directories(run_ / "checkpoints");
    for (const std::int64_t step : {100, 200}) {
      auto snapshot = random_snapshot(step, 52);
      if (step == 200) snapshot.score = std::nan("");
      write_checkpoint(run_ / "checkpoints" / checkpoint_name(step), snapshot);
    }
  }
  Result tool(const std::string& arguments) { return run(tool_ + " " + arguments); }

  std::string tool_;
  const TemporaryFolder folder_;
  const std::filesystem::path run_ = folder_.path();
  const std::string path_ = folder_.path().string();
};

TEST_F(CheckpointTool, ListsNewestFirst) {
  const auto result = tool("list " + path_);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_LT(result.output.find("step-00000200.h5"), result.output.find("step-00000100.h5"));
  EXPECT_THAT(result.output, HasSubstr("0.25"));
  EXPECT_EQ(tool("list " + path_ + "/checkpoints").output, result.output);
}

TEST_F(CheckpointTool, ShowsAttributesAndArrays) {
  for (const auto& path : {path_, path_ + "/checkpoints/step-00000200.h5"}) {
    const auto result = tool("show " + path);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("step            200"));
    EXPECT_THAT(result.output, HasSubstr(R"({"model":"gpt","name":"é"})"));
    EXPECT_THAT(result.output,
                testing::ContainsRegex(R"(/model/layer\.bool\.deep +bool +\[2, 3, 1, 5, 2\])"));
  }
}

TEST_F(CheckpointTool, ShowsNothingThatControlsATerminal) {
  auto snapshot = random_snapshot(300, 52);
  snapshot.config = "{\"name\": \"\x1b]0;title\a\"}";
  snapshot.arrays.push_back({"/model/\x1b[2J", DType::uint8, {1}, Bytes(1)});
  const auto file = run_ / "checkpoints" / checkpoint_name(300);
  write_checkpoint(file, snapshot);
  const auto result = tool("show " + file.string());
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, testing::AllOf(HasSubstr("?]0;title?"), HasSubstr("/model/?[2J  "),
                                            testing::Not(HasSubstr("\x1b")), testing::Not(HasSubstr("\a"))));
}

TEST_F(CheckpointTool, VerifiesAndNamesTheDamaged) {
  EXPECT_EQ(tool("verify " + path_).exit_code, 0);
  const auto file = run_ / "checkpoints/step-00000100.h5";
  auto contents = contents_of(file);
  contents.resize(contents.size() / 2);
  write_contents(file, contents);
  const auto result = tool("verify " + path_);
  EXPECT_EQ(result.exit_code, 65) << result.output;
  EXPECT_THAT(result.output, HasSubstr("step-00000200.h5: good"));
  EXPECT_THAT(result.output, HasSubstr("farandole checkpoint: " + file.string()));
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 2) << result.output;
  EXPECT_EQ(tool("verify " + file.string()).exit_code, 65);
  EXPECT_EQ(tool("show " + file.string()).exit_code, 65);
  EXPECT_EQ(tool("list " + path_).exit_code, 0);
}

TEST_F(CheckpointTool, SaysWhatIsWrongWithItsArguments) {
  const std::pair<const char*, const char*> wrong[] = {{"lsit", "did you mean list?"},
                                                       {"verfy x", "did you mean verify?"},
                                                       {"qqqqqq x", "list, show, verify, diff and export"},
                                                       {"", "no command given"},
                                                       {"list", "needs"},
                                                       {"list /no/such/run", "/no/such/run does not exist"},
                                                       {"list a b", "farandole checkpoint: "},
                                                       {"list --verbos x", "unknown option --verbos"}};
  for (const auto& [arguments, message] : wrong) {
    const auto result = tool(arguments);
    EXPECT_EQ(result.exit_code, 64) << arguments << ": " << result.output;
    EXPECT_THAT(result.output, HasSubstr(message));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  }
  std::filesystem::create_directory(run_ / "empty");
  EXPECT_EQ(tool("list " + path_ + "/empty").exit_code, 65);
  EXPECT_EQ(tool("--help").exit_code, 0);
}

}  // namespace
}  // namespace farandole

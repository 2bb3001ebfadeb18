#include "farandole/launch/supervisor/supervised_run.h"

#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <unistd.h>

#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/run/run_files.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

class Asked {
 public:
  explicit Asked(const SupervisedRun& run) {
    const auto [name, value] = run.question();
    ::setenv(name.c_str(), value.value().c_str(), 1);
  }
  ~Asked() { ::unsetenv(run_dir_wanted); }
};

TEST(SupervisedRun, GetsTheLastAnswer) {
  const TemporaryFolder folder(fs::temp_directory_path());
  const auto first = folder.path() / "first with a long name", last = folder.path() / "last";
  fs::create_directory(first);
  fs::create_directory(last);
  SupervisedRun run({}, 0);
  const Asked asked(run);
  EXPECT_EQ(run.folder(), "");
  tell_run_dir(first);
  EXPECT_EQ(run.folder(), first);
  tell_run_dir(last);
  EXPECT_EQ(run.folder(), last);
  tell_run_dir("");
  EXPECT_EQ(run.folder(), "");
  tell_run_dir(last);
  fs::remove(last);
  EXPECT_EQ(run.folder(), "") << "the folder is gone";
  tell_run_dir(".");
  EXPECT_EQ(run.folder(), fs::absolute("."));
}

TEST(SupervisedRun, AsksNobodyIfTheLauncherKnows) {
  const TemporaryFolder folder(fs::temp_directory_path());
  SupervisedRun run({folder.path(), false}, 0);
  EXPECT_EQ(run.question(), std::pair(std::string(run_dir_wanted), std::optional<std::string>()));
  EXPECT_EQ(run.folder(), folder.path());
}

// The contents of the file may come from a program that does not use tell_run_dir().
TEST(SupervisedRun, TakesNothingButAFolder) {
  SupervisedRun run({}, 0);
  const auto file = run.question().second.value();
  for (const auto& text : {std::string("relative"), std::string(100'000, '/'), std::string("/\0\0", 3)}) {
    const OwnedDescriptor written(::open(file.c_str(), O_WRONLY | O_TRUNC));
    ASSERT_GE(written.get(), 0);
    ASSERT_EQ(::write(written.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    const auto answer = run.folder();
    EXPECT_TRUE(answer.empty() || fs::is_directory(answer)) << answer;
  }
}

TEST(SupervisedRun, IsNotAnsweredWhereNobodyAsks) {
  tell_run_dir("/");
  std::optional<SupervisedRun> run(std::in_place, LaunchedRun(), 0);
  const Asked asked(*run);
  run.reset();
  tell_run_dir("/");  // the supervisor has ended
  const TemporaryFolder folder(fs::temp_directory_path());
  const auto file = folder.path() / "of another process";
  std::ofstream(file) << "content";
  ::setenv(run_dir_wanted, file.c_str(), 1);
  tell_run_dir("/");
  EXPECT_EQ(fs::file_size(file), 7u);
}

}  // namespace
}  // namespace farandole

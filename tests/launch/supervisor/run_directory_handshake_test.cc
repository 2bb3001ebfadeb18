#include "farandole/launch/supervisor/run_directory_handshake.h"

#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <unistd.h>

#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/run/run_folder.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

class Asked {
 public:
  explicit Asked(const RunDirectoryHandshake& question) {
    const auto [name, value] = question.asked();
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Asked() { ::unsetenv(run_dir_wanted); }
};

TEST(RunDirectoryHandshake, GetsTheLastAnswer) {
  const TemporaryFolder folder(fs::temp_directory_path());
  const auto first = folder.path() / "first with a long name", last = folder.path() / "last";
  fs::create_directory(first);
  fs::create_directory(last);
  const RunDirectoryHandshake question;
  const Asked asked(question);
  EXPECT_EQ(question.answer(), "");
  tell_run_dir(first);
  EXPECT_EQ(question.answer(), first);
  tell_run_dir(last);
  EXPECT_EQ(question.answer(), last);
  tell_run_dir("");
  EXPECT_EQ(question.answer(), "");
  tell_run_dir(last);
  fs::remove(last);
  EXPECT_EQ(question.answer(), "") << "the folder is gone";
  tell_run_dir(".");
  EXPECT_EQ(question.answer(), fs::absolute("."));
}

// The contents of the file may come from a program that does not use tell_run_dir().
TEST(RunDirectoryHandshake, TakesNothingButAFolder) {
  const RunDirectoryHandshake question;
  const auto file = question.asked().second;
  for (const auto& text : {std::string("relative"), std::string(100'000, '/'), std::string("/\0\0", 3)}) {
    const OwnedDescriptor written(::open(file.c_str(), O_WRONLY | O_TRUNC));
    ASSERT_GE(written.get(), 0);
    ASSERT_EQ(::write(written.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    const auto answer = question.answer();
    EXPECT_TRUE(answer.empty() || fs::is_directory(answer)) << answer;
  }
}

TEST(RunDirectoryHandshake, IsNotAnsweredWhereNobodyAsks) {
  tell_run_dir("/");
  std::optional<RunDirectoryHandshake> question(std::in_place);
  const Asked asked(*question);
  question.reset();
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

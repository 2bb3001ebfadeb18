#include "farandole/launch/session_folder.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <sys/file.h>

#include "farandole/launch/machine.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

class Sessions : public testing::Test {
 protected:
  // As a launcher that was killed leaves it.
  fs::path leftover(const std::string& name, const std::string& host) {
    const auto folder = parent_ / name;
    fs::create_directories(folder / "ompi.host.0" / "pid.7");
    if (!host.empty()) std::ofstream(folder / ("launcher-" + host + ".lock"));
    return folder;
  }

  const TemporaryFolder parent_;
};

TEST_F(Sessions, GoWithTheirScope) {
  std::optional<SessionFolder> one(parent_.path()), other(parent_.path());
  EXPECT_NE(one->path(), other->path());
  EXPECT_EQ(one->path().parent_path(), parent_.path());
  fs::create_directories(one->path() / "ompi.host.0" / "pid.7");
  one.reset();
  EXPECT_TRUE(fs::exists(other->path())) << "it is in use";
  other.reset();
  EXPECT_TRUE(fs::is_empty(parent_.path()));
}

TEST_F(Sessions, RemoveThoseOfKilledLaunchers) {
  const auto dead = leftover("farandole-dead00", host_name());
  const auto used = leftover("farandole-used00", host_name());
  const auto elsewhere = leftover("farandole-else00", "another-host");
  const auto beginning = leftover("farandole-begins", "");
  const auto foreign = leftover("other-dead00", host_name());
  const OwnedDescriptor lock(
      ::open((used / ("launcher-" + host_name() + ".lock")).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  const SessionFolder session(parent_.path());
  EXPECT_FALSE(fs::exists(dead));
  for (const auto& folder : {used, elsewhere, beginning, foreign}) EXPECT_TRUE(fs::exists(folder)) << folder;
}

TEST_F(Sessions, GoWhereTheUserWantsThem) {
  const auto changes_with = [&](const std::string& chosen) {
    return session_environment(parent_.path(),
                               [&](const char* name) { return name == chosen ? "/scratch" : nullptr; });
  };
  EXPECT_EQ(changes_with("").size(), 2U);
  EXPECT_EQ(changes_with("").front().second, parent_.path().string());
  EXPECT_TRUE(changes_with("OMPI_MCA_orte_tmpdir_base").empty());
  EXPECT_TRUE(changes_with("PRTE_MCA_prte_local_tmpdir_base").empty());
}

}  // namespace
}  // namespace farandole

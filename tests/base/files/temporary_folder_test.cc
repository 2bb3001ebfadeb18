#include "farandole/base/files/temporary_folder.h"

#include <atomic>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <thread>

#include "lane.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(TemporaryFolder, IsRemovedWithItsContents) {
  const TemporaryFolder parent;
  {
    const TemporaryFolder folder(parent.path());
    fs::create_directories(folder / "a" / "b");
    EXPECT_EQ(entries(parent.path()), 1U);
  }
  EXPECT_EQ(entries(parent.path()), 0U);
}

// A second SIGTERM ends mpirun at once, while supervisors still write the records of their ranks.
TEST(TemporaryFolder, IsRemovedWhileOthersWriteIntoIt) {
  const TemporaryFolder parent;
  for (int round = 0; round < rounds(20, 500); ++round) {
    std::atomic<bool> writing = false, stop = false;
    std::thread writer;
    {
      const TemporaryFolder folder(parent.path());
      writer = std::thread([&, path = folder.path()] {
        for (int file = 0; !stop; ++file) {
          std::ofstream(path / std::to_string(file)) << file;
          writing = true;
        }
      });
      while (!writing) std::this_thread::yield();
    }
    stop = true;
    writer.join();
    EXPECT_EQ(entries(parent.path()), 0U) << "round " << round;
  }
}

TEST(TemporaryFolder, DiscardingAgainFinishesTheRemoval) {
  const TemporaryFolder parent;
  const auto folder = parent / "farandole-abc.discarded";
  fs::create_directories(folder / "rest");
  ASSERT_TRUE(is_discarded(folder));
  ASSERT_FALSE(is_discarded(parent.path()));
  discard_folder(folder);
  EXPECT_EQ(entries(parent.path()), 0U);
}

}  // namespace
}  // namespace farandole

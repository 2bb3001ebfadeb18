#include "farandole/base/files/file_bytes.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"

namespace farandole {
namespace {

TEST(ReadWholeFile, TakesNoMoreMemoryThanAFileOfARunNeeds) {
  const TemporaryFolder folder;
  const auto file = folder / "run.json";
  std::ofstream(file) << "text";
  EXPECT_EQ(read_whole_file(file), "text");
  std::filesystem::resize_file(file, std::uintmax_t{60} << 30);  // A hole: it takes no space.
  try {
    read_whole_file(file);
    FAIL();
  } catch (const CorruptInput& error) {
    EXPECT_EQ(error.what(),
              file.string() + " is damaged or no file of a run: it has more than 64 MiB; remove it");
  }
  EXPECT_EQ(read_whole_file(folder / "absent"), std::nullopt);
  EXPECT_FALSE(read_whole_file("/proc/self/cmdline")->empty());
}

}  // namespace
}  // namespace farandole

#include <gtest/gtest.h>
#include <memory>
#include <stop_token>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "hang.h"
#include "lane.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

// A process is forked while other threads begin and end, so that some hold the recorder's lock. The
// child uses and ends the timeline like its parent. It must come to its end, and nothing of it may be in
// the parent's file.
TEST(ForkedProcess, RecordsNothingAndEnds) {
#ifdef FARANDOLE_SANITIZED
  GTEST_SKIP() << "the sanitizer's own locks do not survive a fork beside threads that begin and end";
#endif
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "node");
  TimelineOptions options{
      .file = folder / "recorder/rank-0000.ftl", .recorder_bytes = 1 << 20, .node_folder = folder / "node"};
  auto timeline = std::make_unique<Timeline>(options);
  timeline->name_thread("training");

  std::jthread others([&](const std::stop_token& stop) {
    for (int i = 0; !stop.stop_requested(); ++i) {
      std::thread([&] { timeline->name_thread("short"); }).join();
      for (int name = 0; name < 10; ++name) timeline->intern(std::to_string(10 * i + name));
    }
  });
  const int forks = rounds(60, 2'000);
  for (int i = 0; i < forks; ++i) {
    timeline->span(Category::other, "parent", i, i + 1);
    const pid_t child = ::fork();
    if (child == 0) {
      end_if_it_hangs(20);
      timeline->span(Category::other, "child", 0, 1);
      timeline->intern("a name of the child");
      std::thread([&] { timeline->span(Category::other, "thread of the child", 0, 1); }).join();
      timeline.reset();
      ::_exit(0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "fork " << i;
  }
  others.request_stop();
  others.join();
  EXPECT_TRUE(std::filesystem::exists(timeline->file()));  // no child has taken it from the node
  EXPECT_FALSE(std::filesystem::exists(options.file));
  timeline.reset();

  const RecorderFile file(options.file);
  std::size_t spans = 0;
  for (std::size_t slot = 0; slot < file.threads().size(); ++slot) spans += file.records(slot).size();
  EXPECT_EQ(spans, static_cast<std::size_t>(forks));
  for (const auto& thread : file.threads())
    EXPECT_TRUE(thread.name == "training" || thread.name == "short") << thread.name;
}

}  // namespace
}  // namespace farandole

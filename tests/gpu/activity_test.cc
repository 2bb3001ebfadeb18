#include <gtest/gtest.h>
#include <map>
#include <string>
#include <thread>

#include "gpu/kernels.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/gpu/gpu_activity.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

// Real work on a real device: everything it does is there, once, in the step and phase that launched it,
// between the host's own clock readings.
TEST(GpuActivity, RecordsWhatTheDeviceDoes) {
  if (gpu_count() == 0) GTEST_SKIP() << "there is no GPU";
  const TemporaryFolder folder;
  TimelineOptions options;
  options.file = folder / "rank-0000.ftl";
  options.recorder_bytes = 4 << 20;
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> host;  // by step
  {
    Timeline timeline(options);
    timeline.name_thread("training");
    std::string why_not;
    const CollectiveLaunches collectives;
    const auto activity = GpuActivity::start(timeline, {{2, 5}}, collectives, why_not);
    ASSERT_NE(activity, nullptr) << why_not;
    for (std::int64_t step = 0; step < 8; ++step) {
      timeline.set_step(step);
      activity->mark_step(step);
      const auto start = now_ns();
      {
        const Span span(timeline, Category::forward, "forward");
        ASSERT_TRUE(add_on_gpu(1 << 20));
      }
      if (step == 3) {
        const Span span(timeline, Category::backward, "backward");
        bool done = false;  // as autograd's thread does
        std::thread([&] { done = add_on_gpu_graph(5); }).join();
        ASSERT_TRUE(done);
      }
      host[step] = {start, now_ns()};
    }
    activity->mark_step(-1);
    activity->flush();
  }
  const RecorderFile file(options.file);
  std::map<std::string, std::map<std::int64_t, int>> seen;
  std::map<Category, int> launched_in;
  for (std::size_t slot = 0; slot < file.threads().size(); ++slot) {
    for (const Record& record : file.records(slot)) {
      if (record.category != Category::gpu_kernel && record.category != Category::gpu_memcpy) continue;
      ++seen[file.names().at(record.name)][record.step];
      ASSERT_TRUE(record.launched_in());
      ++launched_in[*record.launched_in()];
      ASSERT_TRUE(host.contains(record.step)) << record.step;
      EXPECT_GE(record.start_ns, host[record.step].first - 50'000);
      EXPECT_LE(record.end_ns, host[record.step].second + 50'000);
    }
  }
  EXPECT_EQ(launched_in, (std::map<Category, int>{{Category::forward, 4 * 3}, {Category::backward, 5}}));
  for (std::int64_t step = 0; step < 8; ++step) {
    const bool inside = step >= 2 && step <= 5;
    EXPECT_EQ(seen["farandole::add_one"][step], !inside ? 0 : step == 3 ? 6 : 1) << step;
    EXPECT_EQ(seen["copy host to device"][step], inside ? 1 : 0) << step;
    EXPECT_EQ(seen["copy device to host"][step], inside ? 1 : 0) << step;
  }
}

}  // namespace
}  // namespace farandole

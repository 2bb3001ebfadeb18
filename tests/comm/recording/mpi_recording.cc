// The end of a recording if the trace cannot be written or a rank no longer has records. Every rank must
// return, and the records must be kept.
#include <array>
#include <csignal>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <sys/resource.h>

#include "comm/mpi_world.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/comm/recording/recording.h"
#include "farandole/timeline/chrome_trace/trace_reader.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

// Rank 0's folder, used by all ranks.
class RecordingTest : public testing::Test {
 protected:
  static constexpr int spans = 10'000;  // three blocks per rank

  RecordingTest() {
    std::array<char, 512> path{};
    if (layout().rank == 0) {
      folder_.emplace();
      folder_->path().string().copy(path.data(), path.size() - 1);
      fs::create_directories(*folder_ / "recorder");
    }
    world->new_communicator(Waiting::yielding)->broadcast("folder", path.data(), path.size(), 0);
    run_ = path.data();
  }
  ~RecordingTest() override { barrier(); }

  static const RankLayout& layout() { return world->layout(); }
  static void barrier() { world->new_communicator(Waiting::yielding)->barrier("barrier"); }

  fs::path recorder() const { return run_ / "recorder" / fmt::format("rank-{:04}.ftl", layout().rank); }
  fs::path trace() const { return run_ / "timeline.json.gz"; }

  template <typename Before>
  void record_and_publish(Before before) {
    Timeline timeline({recorder(), {}, 2 << 20, layout().rank, layout().size, layout().node});
    Recording recording(world->new_channel(), timeline, {.run_dir = run_});
    const auto name = timeline.intern("work");
    std::mt19937 random;  // makes the trace compress badly
    auto now = now_ns();
    for (int i = 0; i < spans; ++i) {
      const auto start = now;
      now += 1 + random() % 100'000;
      timeline.span(Category::forward, name, start, now);
    }
    before();
    barrier();
    recording.publish();
  }

  std::set<int> ranks_in_trace() const {
    struct : TraceVisitor {
      void span(const TraceSpan& span) override { ranks.insert(static_cast<int>(span.pid) - 1); }
      std::set<int> ranks;
    } visitor;
    const auto summary = read_trace(trace(), visitor);
    EXPECT_EQ(summary.damaged, 0U);
    EXPECT_EQ(summary.damage, "");
    return visitor.ranks;
  }

  fs::path run_;

 private:
  std::optional<TemporaryFolder> folder_;
};

// Limits the size of the calling process's files during its lifetime, like an exhausted quota.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(RecordingTest, EndsWhereTheTraceCannotBePublished) {
  record_and_publish([&] {
    if (layout().rank == 0) fs::create_directories(trace() / "in the way");
  });
  EXPECT_GE(RecorderFile(recorder()).records(0).size(), std::size_t{spans});
}

// The disk becomes full before the first block, within the blocks of a rank, or at the end of the merge.
TEST_F(RecordingTest, EndsWhereTheDiskIsFull) {
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{1} << 12, rlim_t{1} << 14, rlim_t{1} << 16, RLIM_INFINITY}) {
    std::optional<FileSizeLimit> limit;
    record_and_publish([&] {
      if (layout().rank == 0) limit.emplace(bytes);
    });
    limit.reset();
    EXPECT_GE(RecorderFile(recorder()).records(0).size(), std::size_t{spans});
    if (layout().rank == 0) {
      EXPECT_EQ(fs::exists(trace()), bytes == RLIM_INFINITY) << bytes;
    }
    barrier();
  }
}

TEST_F(RecordingTest, DoesWithoutTheFileThatHasGone) {
  for (int gone = 0; gone < layout().size; ++gone) {
    record_and_publish([&] {
      if (layout().rank == gone) fs::remove(recorder());
    });
    if (layout().rank == 0) {
      std::set<int> others;
      for (int rank = 0; rank < layout().size; ++rank)
        if (rank != gone) others.insert(rank);
      EXPECT_EQ(ranks_in_trace(), others);
    }
    barrier();
  }
}

}  // namespace
}  // namespace farandole

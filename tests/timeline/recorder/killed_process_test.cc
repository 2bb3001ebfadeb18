#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "lane.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/chrome_trace/trace_reader.h"
#include "farandole/timeline/merge/run_recorders.h"
#include "farandole/timeline/merge/trace_merge.h"
#include "farandole/timeline/mpi_trace.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

std::uint64_t recorded_by(const RecorderFile& file, const std::string& name) {
  for (const auto& thread : file.threads())
    if (thread.name == name) return thread.recorded;
  ADD_FAILURE() << "no thread " << name;
  return 0;
}

// Checks the trace of a recorder's file: all `spans` records must be undamaged spans and must be shown.
void expect_sound_trace(const TemporaryFolder& folder, const std::filesystem::path& file, std::size_t spans) {
  struct Counting : TraceVisitor {
    void span(const TraceSpan& span) override {
      ++spans;
      negative += span.duration_ns < 0 || span.start_ns < 0;
    }
    std::size_t spans = 0, negative = 0;
  } shown;
  RunRecorders run = open_run(recorder_files(file), {});
  EXPECT_TRUE(run.sound());
  const MergeResult merged = merge_timelines(std::move(run.ranks), folder / "trace.json.gz");
  EXPECT_EQ(merged.damaged, 0u);
  const TraceSummary summary = read_trace(folder / "trace.json.gz", shown);
  EXPECT_EQ(summary.events, merged.events);
  EXPECT_EQ(summary.damaged, 0u);
  EXPECT_THAT(summary.warnings, testing::IsEmpty());
  EXPECT_EQ(shown.spans, spans);
  EXPECT_EQ(shown.negative, 0u);
}

using Report = std::function<void(std::int64_t)>;

// Runs `work` in a child process, which is killed when it has reported a number from `kill_after` on. Returns
// the last number that it reported.
std::int64_t last_before_kill(std::int64_t kill_after, const std::function<void(const Report&)>& work) {
  int progress[2];
  EXPECT_EQ(::pipe(progress), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    work([&](std::int64_t number) {
      if (::write(progress[1], &number, sizeof number) != sizeof number) ::_exit(1);
    });
    ::_exit(1);
  }
  ::close(progress[1]);
  std::int64_t written = -1;
  while (written < kill_after && ::read(progress[0], &written, sizeof written) == sizeof written) {
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (std::int64_t value; ::read(progress[0], &value, sizeof value) == sizeof value;) written = value;
  ::close(progress[0]);
  return written;
}

// A child process records numbered events on three threads until it is killed. All events that it reported as
// recorded must be in the file and in the trace.
TEST(KilledProcess, LeavesWhatItWrote) {
  const TemporaryFolder folder;
  std::mt19937 random(seed(20240607));
  for (int round = 0; round < rounds(6, 200); ++round) {
    TimelineOptions options{.file = folder / "recorder/rank-0003.ftl",
                            .recorder_bytes = std::size_t{round % 2 == 0 ? 256u << 10 : 16u << 20},
                            .rank = 3,
                            .world_size = 4};
    const std::int64_t written =
        last_before_kill(static_cast<std::int64_t>(random() % 40'000), [&](const Report& report) {
          Timeline timeline(options);
          const auto work = [&](int thread) {
            timeline.name_thread("worker " + std::to_string(thread));
            for (std::int64_t i = 0;; ++i) {
              timeline.set_step(i);
              timeline.span(Category::other, "work", i, i + thread);
              if (thread == 0 && i % 512 == 0) report(i);
            }
          };
          std::thread one([&] { work(1); });
          std::thread two([&] { work(2); });
          work(0);
        });

    const RecorderFile file(options.file);
    EXPECT_FALSE(file.closed());
    file.verify();
    EXPECT_GE(recorded_by(file, "worker 0"), static_cast<std::uint64_t>(written));
    std::size_t spans = 0;
    for (std::size_t slot = 0; slot < file.threads().size(); ++slot) {
      const auto records = file.records(slot);
      spans += records.size();
      ASSERT_EQ(records.size() + file.threads()[slot].overwritten, file.threads()[slot].recorded);
      for (std::size_t i = 0; i < records.size(); ++i)
        ASSERT_EQ(records[i].start_ns, static_cast<std::int64_t>(file.threads()[slot].overwritten + i));
    }
    expect_sound_trace(folder, options.file, spans);
  }
}

// A child process polls, so that its last record grows in place, until it is killed in the middle of this.
TEST(KilledProcess, LeavesASoundRecordThatWasGrowing) {
  const TemporaryFolder folder;
  std::mt19937 random(seed(20261126));
  for (int round = 0; round < rounds(60, 2000); ++round) {
    TimelineOptions options{.file = folder / "recorder/rank-0000.ftl",
                            .recorder_bytes = recorder::smallest_file};
    last_before_kill(static_cast<std::int64_t>(64 + random() % 5'000), [&](const Report& report) {
      Timeline timeline(options);
      const MpiTraceSink sink = sink_into(timeline);
      MpiCall call{.polls = 1};
      alignas(8) std::array<std::byte, MpiTraceSink::span_bytes> span;
      for (std::int64_t i = 0;; ++i) {
        if (sink.begin(&timeline, Category::communication, "MPI_Test", span.data()))
          sink.end(span.data(), call);
        if (i % 64 == 0) report(i);
      }
    });
    ASSERT_NO_THROW(RecorderFile(options.file).verify()) << "round " << round;
  }
}

}  // namespace
}  // namespace farandole

#include "farandole/timeline/timeline.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "timeline/recorded_threads.h"

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

TEST(Timeline, WithoutAFileRecordsNothing) {
  Timeline timeline;
  EXPECT_FALSE(timeline.enabled());
  timeline.name_thread("training");
  timeline.set_step(1);
  EXPECT_EQ(timeline.step(), 1);
  { const Span span(timeline, Category::forward, "forward"); }
  timeline.span(Category::forward, timeline.intern("x"), 1, 2);
  timeline.instant(timeline.intern("x"));
  timeline.counter({}, 1);
  timeline.span_on(timeline.add_track("gpu"), Category::gpu_kernel, {}, {.step = 1}, 1, 2);
}

TEST(Timeline, RecordsEveryKindAsGiven) {
  const TemporaryFolder folder;
  {
    Timeline timeline(options_in(folder));
    timeline.name_thread("training");
    timeline.set_step(12);
    timeline.span(Category::backward, timeline.intern("layer 1"), 100, 250);
    timeline.collective(timeline.intern("bucket 0"), timeline.intern("allreduce"), {17, 2, 1 << 20}, 300,
                        400);
    timeline.set_step(-1);
    timeline.instant(timeline.intern("hello"));
    timeline.counter(timeline.intern("CPU %"), 98.5);
    const TrackId gpu = timeline.add_track("GPU stream 7");
    timeline.span_on(gpu, Category::gpu_kernel, timeline.intern("gemm"), {12, Category::backward}, 120, 130);
    timeline.span_on(gpu, Category::gpu_memcpy, timeline.intern("copy"), {}, 220, 230, 150, 4096);
    timeline.span_on(gpu, Category::gpu_kernel, timeline.intern("late"), {}, 10'000'000'000, 10'000'000'001,
                     0, 0);
  }
  const RecorderFile file(folder / "recorder/rank-0003.ftl");
  file.verify();
  EXPECT_EQ(file.rank(), 3);
  EXPECT_EQ(file.world_size(), 4);
  EXPECT_EQ(file.host(), "node1");
  EXPECT_EQ(file.process(), static_cast<std::uint32_t>(::getpid()));
  EXPECT_TRUE(file.closed());
  EXPECT_EQ(file.dropped(), 0u);
  EXPECT_LE(file.start_monotonic_ns(), now_ns());
  ASSERT_EQ(file.threads().size(), 2u);
  EXPECT_EQ(file.threads()[0].name, "training");
  EXPECT_EQ(file.threads()[1].name, "GPU stream 7");
  EXPECT_EQ(file.threads()[1].recorded, 0u);
  const auto records = file.records(0);
  ASSERT_EQ(records.size(), 7u);
  EXPECT_EQ(records[0].kind, RecordKind::span);
  EXPECT_EQ(records[0].category, Category::backward);
  EXPECT_EQ(file.names().at(records[0].name), "layer 1");
  EXPECT_EQ(records[0].start_ns, 100);
  EXPECT_EQ(records[0].end_ns, 250);
  EXPECT_EQ(records[0].step, 12);
  EXPECT_EQ(records[1].kind, RecordKind::collective);
  EXPECT_EQ(file.names().at(records[1].operation), "allreduce");
  EXPECT_EQ(records[1].sequence, 17u);
  EXPECT_EQ(records[1].communicator, 2u);
  EXPECT_EQ(records[1].payload, 1u << 20);
  EXPECT_EQ(records[2].kind, RecordKind::instant);
  EXPECT_EQ(records[2].step, -1);
  EXPECT_EQ(records[3].kind, RecordKind::counter);
  EXPECT_EQ(records[3].value(), 98.5);
  EXPECT_EQ(records[4].track, 1u);
  EXPECT_EQ(records[4].step, 12);
  EXPECT_EQ(records[4].launched_in(), Category::backward);
  EXPECT_EQ(records[4].queued_ns(), 0u);
  EXPECT_EQ(records[4].mpi_call().bytes, std::nullopt);
  EXPECT_EQ(records[5].queued_ns(), 70u);
  EXPECT_EQ(records[5].mpi_call().bytes, 4096u);
  EXPECT_EQ(records[6].queued_ns(), UINT32_MAX);
  EXPECT_EQ(records[0].launched_in(), std::nullopt);
}

TEST(Timeline, SpanTakesTheNameThatStandsAtItsAddress) {
  const TemporaryFolder folder;
  char name[8] = "one";
  {
    Timeline timeline(options_in(folder));
    timeline.name_thread("training");
    { const Span span(timeline, Category::other, name); }
    std::copy_n("two", 4, name);
    { const Span span(timeline, Category::other, name); }
  }
  const RecorderFile file(folder / "recorder/rank-0003.ftl");
  const auto records = file.records(0);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(file.names().at(records[0].name), "one");
  EXPECT_EQ(file.names().at(records[1].name), "two");
  EXPECT_LE(records[0].start_ns, records[0].end_ns);
}

TEST(Timeline, ManyThreadsKeepTheirOwnOrder) {
  const TemporaryFolder folder;
  constexpr int threads = 8;
  constexpr int events = 1500;
  {
    Timeline timeline(options_in(folder, 4 << 20));
    run_together(threads, [&](int thread) {
      timeline.name_thread("worker " + std::to_string(thread));
      for (int i = 0; i < events; ++i)
        timeline.span(Category::other, "work", thread * 10'000 + i, thread * 10'000 + i + 1);
    });
  }
  const RecorderFile file(folder / "recorder/rank-0003.ftl");
  file.verify();
  for (int thread = 0; thread < threads; ++thread) {
    const std::size_t slot = slot_of(file, "worker " + std::to_string(thread));
    const auto records = file.records(slot);
    ASSERT_EQ(records.size(), static_cast<std::size_t>(events));
    for (int i = 0; i < events; ++i)
      ASSERT_EQ(records[static_cast<std::size_t>(i)].start_ns, thread * 10'000 + i);
  }
}

TEST(Timeline, OverwritesTheOldestAndCounts) {
  const TemporaryFolder folder;
  constexpr int events = 200'000;
  {
    Timeline timeline(options_in(folder));
    run_together(3, [&](int thread) {
      timeline.name_thread(thread == 0 ? "training" : "other " + std::to_string(thread));
      for (int i = 0; i < events; ++i) timeline.span(Category::other, "work", i, i + 1);
    });
  }
  EXPECT_LE(std::filesystem::file_size(folder / "recorder/rank-0003.ftl"), 1u << 20);
  const RecorderFile file(folder / "recorder/rank-0003.ftl");
  file.verify();
  std::size_t kept = 0;
  for (std::size_t slot = 0; slot < file.threads().size(); ++slot) {
    const auto records = file.records(slot);
    EXPECT_EQ(file.threads()[slot].recorded, static_cast<std::uint64_t>(events));
    ASSERT_EQ(records.size() + file.threads()[slot].overwritten, static_cast<std::uint64_t>(events));
    for (std::size_t i = 0; i < records.size(); ++i)
      ASSERT_EQ(records[i].start_ns, static_cast<std::int64_t>(events - records.size() + i));
    kept += records.size();
  }
  EXPECT_GT(kept, (1u << 20) / sizeof(Record) * 3 / 4) << "most of the file must hold records";
}

TEST(Timeline, DropsAndCountsWithoutASlot) {
  const TemporaryFolder folder;
  constexpr int threads = 40;
  {
    Timeline timeline(options_in(folder));
    run_together(threads, [&](int) {
      timeline.span(Category::other, "work", 1, 2);
      timeline.span(Category::other, "work", 3, 4);
    });
  }
  const RecorderFile file(folder / "recorder/rank-0003.ftl");
  file.verify();
  EXPECT_EQ(file.threads().size(), recorder::thread_slots);
  EXPECT_EQ(file.dropped(), 2u * (threads - recorder::thread_slots));
}

TEST(Timeline, ThreadsOfOneNameTakeOverTheRing) {
  const TemporaryFolder folder;
  {
    Timeline timeline(options_in(folder));
    timeline.name_thread("training");
    for (int i = 0; i < 100; ++i)
      std::thread([&] {
        timeline.name_thread("checkpoint writer");
        timeline.span(Category::checkpoint, "write", i, i + 1);
      }).join();
  }
  const RecorderFile file(folder / "recorder/rank-0003.ftl");
  ASSERT_EQ(file.threads().size(), 2u);
  EXPECT_EQ(file.dropped(), 0u);
  EXPECT_EQ(file.records(1).size(), 100u);
}

TEST(Timeline, OneThreadMayUseSeveral) {
  const TemporaryFolder folder;
  TimelineOptions options = options_in(folder);
  {
    std::vector<std::unique_ptr<Timeline>> timelines;
    for (int rank = 0; rank < 4; ++rank) {
      options.rank = rank;
      options.file = folder / std::to_string(rank);
      timelines.push_back(std::make_unique<Timeline>(options));
    }
    run_together(4, [&](int rank) {
      timelines[static_cast<std::size_t>(rank)]->name_thread("training");
      for (int i = 0; i < 1000; ++i)
        timelines[static_cast<std::size_t>((rank + i) % 4)]->span(Category::other, "a", i, i);
    });
    timelines[0].reset();
    timelines[1]->span(Category::other, "b", 1, 2);
  }
  for (int rank = 0; rank < 4; ++rank) {
    const RecorderFile file(folder / std::to_string(rank));
    EXPECT_EQ(file.threads().at(0).name, "training");
    std::size_t records = 0;
    for (std::size_t slot = 0; slot < file.threads().size(); ++slot) records += file.records(slot).size();
    EXPECT_EQ(records, rank == 1 ? 1001u : 1000u);
  }
}

TEST(Timeline, LongAndManyNamesAreBounded) {
  const TemporaryFolder folder;
  {
    Timeline timeline(options_in(folder, recorder::smallest_file));
    timeline.name_thread(std::string(1000, 't'));
    timeline.span(Category::other, timeline.intern(std::string(100'000, 'n')), 1, 2);
    for (int i = 0; i < 10'000; ++i)
      timeline.span(Category::other, timeline.intern("name " + std::to_string(i)), 1, 2);
  }
  const RecorderFile file(folder / "recorder/rank-0003.ftl");
  file.verify();
  EXPECT_EQ(file.names().at(0), "(unnamed)");
  EXPECT_EQ(file.names().at(1), std::string(recorder::longest_name, 'n'));
  EXPECT_EQ(file.names().at(file.records(slot_of(file, std::string(63, 't'))).back().name), "(unnamed)");
}

TEST(Timeline, SaysWhatIsWrongWithTheFile) {
  const TemporaryFolder folder;
  TimelineOptions options = options_in(folder);
  options.recorder_bytes = 1000;
  EXPECT_THROW(Timeline{options}, UserError);
  std::ofstream(folder / "file") << "x";
  options = options_in(folder);
  options.file = folder / "file/rank-0003.ftl";
  EXPECT_THROW(Timeline{options}, Error);
}

// A full disk causes one warning, and the program continues.
TEST(Timeline, AFullDiskStopsRecordingOnly) {
  const TemporaryFolder folder;
  const TimelineOptions options = options_in(folder);
  int error[2];
  ASSERT_EQ(::pipe(error), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(error[1], STDOUT_FILENO);
    ::dup2(error[1], STDERR_FILENO);
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{100 << 10, 100 << 10};
    ::setrlimit(RLIMIT_FSIZE, &small);
    Timeline timeline(options);
    for (int i = 0; i < 1000; ++i) const Span span(timeline, Category::forward, "forward");
    timeline.set_clock({});
    ::_exit(timeline.enabled() ? 1 : 0);
  }
  ::close(error[1]);
  std::string said;
  for (char c; ::read(error[0], &c, 1) == 1;) said.push_back(c);
  ::close(error[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_THAT(said, testing::HasSubstr("no timeline is recorded"));
  EXPECT_FALSE(std::filesystem::exists(options.file));
}

// If a file is read or copied while it is written, records may be overwritten in the meantime.
// This is not damage.
TEST(Timeline, WhatIsOverwrittenWhileItIsReadIsNoDamage) {
  const TemporaryFolder folder;
  const TimelineOptions options = options_in(folder, 256 << 10);
  Timeline timeline(options);
  std::int64_t next = 0;
  const auto work = [&](int events) {
    for (int i = 0; i < events; ++i, ++next) timeline.span(Category::other, "work", next, next + 1);
  };
  timeline.name_thread("training");
  work(10'000);
  for (const int more : {1, 100, 1000, 5000, 100'000}) {
    const RecorderFile file(options.file);
    const auto oldest = static_cast<std::int64_t>(file.threads().at(0).overwritten);
    const auto end = next;
    work(more);
    RecordDamage damage;
    const auto records = file.records(0, &damage);
    EXPECT_EQ(damage.records, 0u) << more;
    const auto left = std::max<std::int64_t>(0, end - oldest - (more - 1));
    EXPECT_EQ(static_cast<std::int64_t>(records.size()), left) << more;
    EXPECT_TRUE(records.empty() || records.back().start_ns == end - 1);
  }
}

}  // namespace
}  // namespace farandole

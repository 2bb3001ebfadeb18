#include "farandole/timeline/mpi_trace.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>

#include "timeline/gzip/unzipped.h"

#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/chrome_trace/trace_reader.h"
#include "farandole/timeline/merge/run_recorders.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/recorder/recorder_map.h"
#include "farandole/timeline/recorder/recorder_rings.h"

namespace farandole {
namespace {

using testing::HasSubstr;

TimelineOptions mpi_options_in(const TemporaryFolder& folder) {
  return {.file = folder / "recorder/rank-0000.ftl", .recorder_bytes = 1 << 20, .host = "node1"};
}

MpiCall polled() {
  return {.polls = 1};
}

// Records a call as a wrapper does.
void call(Timeline& timeline, const char* name, const MpiCall& what) {
  const MpiTraceSink sink = sink_into(timeline);
  alignas(8) std::byte span[MpiTraceSink::span_bytes];
  if (sink.begin(sink.timeline, Category::communication, name, span)) sink.end(span, what);
}

std::vector<Record> records_of(const TemporaryFolder& folder) {
  const RecorderFile file(folder / "recorder/rank-0000.ftl");
  file.verify();
  return file.records(0);
}

TEST(MpiTrace, KeepsWhatIsKnownOfACall) {
  const TemporaryFolder folder;
  MpiCall what;
  what.bytes = std::uint64_t{1} << 41;
  what.peer = 131'071;
  what.tag = 2'000'000'000;
  what.ranks = 131'072;
  {
    Timeline timeline(mpi_options_in(folder));
    timeline.name_thread("training");
    timeline.set_step(4);
    call(timeline, "MPI_Send", what);
    call(timeline, "MPI_Comm_free", {});
  }
  const auto records = records_of(folder);
  ASSERT_EQ(records.size(), 2u);
  const MpiCall kept = records[0].mpi_call();
  EXPECT_EQ(kept.bytes, what.bytes);
  EXPECT_EQ(kept.peer, what.peer);
  EXPECT_EQ(kept.tag, what.tag);
  EXPECT_EQ(kept.ranks, what.ranks);
  EXPECT_FALSE(kept.root || kept.requests || kept.polls > 0);
  EXPECT_FALSE(records[1].mpi_call().bytes || records[1].mpi_call().ranks);

  const auto trace = folder / "trace.json.gz";
  merge_timelines(open_run(recorder_files(folder.path()), {}).ranks, trace);
  const auto text = unzipped(trace);
  EXPECT_THAT(text,
              HasSubstr("\"args\":{\"step\":4,\"bytes\":2199023255552,\"peer\":131071,\"tag\":2000000000,"
                        "\"ranks\":131072}}"));
  EXPECT_THAT(text, HasSubstr("\"args\":{\"step\":4}}"));

  struct Bytes : TraceVisitor {
    void span(const TraceSpan& span) override { (span.name == "MPI_Send" ? sent : other) += span.bytes; }
    std::uint64_t sent = 0, other = 0;
  } bytes;
  read_trace(trace, bytes);
  EXPECT_EQ(bytes.sent, what.bytes);
  EXPECT_EQ(bytes.other, 0u);
}

TEST(MpiTrace, ReadsTheRecordsOfEarlierVersions) {
  const auto record = [](std::uint64_t payload, std::uint32_t operation, std::uint32_t sequence,
                         std::uint64_t details, std::uint64_t peer) {
    constexpr std::uint64_t span = 1, communication = 4;
    return std::bit_cast<Record>(
        std::array<std::uint64_t, 8>{1'000, 2'000, 3, payload, 7 | std::uint64_t{operation} << 32, sequence,
                                     span | communication << 8 | details << 16 | peer << 32, 0});
  };
  const MpiCall sent = record(40, 3, 8, 1 | 2 | 8 | 16, 5).mpi_call();
  EXPECT_EQ(sent.bytes, 40u);
  EXPECT_EQ(sent.peer, 5);
  EXPECT_EQ(sent.tag, 8);
  EXPECT_EQ(sent.ranks, 3u);
  EXPECT_FALSE(sent.root || sent.requests || sent.polls > 0);
  const MpiCall broadcast = record(40, 3, 0, 1 | 4 | 16, 2).mpi_call();
  EXPECT_EQ(broadcast.root, 2);
  EXPECT_FALSE(broadcast.peer || broadcast.tag);
  EXPECT_EQ(record(0, 2, 0, 32, 0).mpi_call().requests, 2u);
  EXPECT_EQ(record(5'000, 0, 0, 128, 0).mpi_call().polls, 5'000u);
  EXPECT_EQ(record(5'000, 0, 0, 64, 0).mpi_call().polls, 0u) << "of versions that counted in another way";
}

// How many polls become one record depends on the machine. The number of polls does not.
TEST(MpiTrace, CountsAllPolls) {
  const TemporaryFolder folder;
  constexpr std::uint64_t polls = 10'000;
  {
    Timeline timeline(mpi_options_in(folder));
    timeline.name_thread("training");
    for (std::uint64_t i = 0; i < polls; ++i) call(timeline, "MPI_Test", polled());
  }
  std::uint64_t counted = 0;
  for (const auto& record : records_of(folder)) counted += record.mpi_call().polls;
  EXPECT_EQ(counted, polls);
}

TEST(MpiTrace, APollSoonAfterTheLastOneExtendsItsRecord) {
  const TemporaryFolder folder;
  {
    const auto rings = std::make_shared<RecorderRings>(RecorderMap::create(mpi_options_in(folder)),
                                                       RecorderRings::WhenFull::overwrites);
    const auto poll = [&](std::int64_t start_ns, std::int64_t end_ns) {
      Record record{};
      record.kind = RecordKind::span;
      record.set_mpi_call(polled());
      record.start_ns = start_ns;
      record.end_ns = end_ns;
      if (rings->extends_last(record)) return true;
      rings->write(rings->ring(), 0, [&](Record& next) { next = record; });
      return false;
    };
    EXPECT_FALSE(poll(1'000, 2'000));
    EXPECT_TRUE(poll(4'000, 5'000));
    EXPECT_TRUE(poll(5'000, 9'000));
    EXPECT_FALSE(poll(11'001, 12'000));  // The program has done something else.
  }
  const auto records = records_of(folder);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].start_ns, 1'000);
  EXPECT_EQ(records[0].end_ns, 9'000);
  EXPECT_EQ(records[0].mpi_call().polls, 3u);
  EXPECT_EQ(records[1].mpi_call().polls, 1u);
}

TEST(MpiTrace, PollsOfDifferentPlacesStayApart) {
  const TemporaryFolder folder;
  const auto poll_twice = [](Timeline& timeline, const char* name) {
    for (int i = 0; i < 2; ++i) call(timeline, name, polled());
  };
  {
    Timeline timeline(mpi_options_in(folder));
    timeline.name_thread("training");
    poll_twice(timeline, "MPI_Test");
    poll_twice(timeline, "MPI_Iprobe");
    {
      const Span span(timeline, Category::forward, "forward");
      poll_twice(timeline, "MPI_Iprobe");
    }
    poll_twice(timeline, "MPI_Iprobe");
    timeline.set_step(1);
    poll_twice(timeline, "MPI_Iprobe");
  }
  // Spans must nest or be disjoint, also after records were extended.
  std::uint64_t counted = 0;
  std::vector<Record> records = records_of(folder);
  const auto forward = std::find_if(records.begin(), records.end(), [](const Record& record) {
    return record.category == Category::forward;
  });
  ASSERT_NE(forward, records.end());
  for (const auto& record : records) {
    counted += record.mpi_call().polls;
    const bool inside = record.start_ns >= forward->start_ns && record.end_ns <= forward->end_ns;
    EXPECT_TRUE(inside || record.end_ns <= forward->start_ns || record.start_ns >= forward->end_ns);
  }
  EXPECT_EQ(counted, 10u);
  EXPECT_GE(records.size(), 6u);
}

TEST(MpiTrace, RecordsNothingWhereNothingIsRecorded) {
  Timeline off;
  const MpiTraceSink sink = sink_into(off);
  alignas(8) std::byte span[MpiTraceSink::span_bytes];
  EXPECT_FALSE(sink.begin(sink.timeline, Category::communication, "MPI_Send", span));
  const MpiTrace none(off);  // the library is not preloaded, so nobody is informed

  const TemporaryFolder folder;
  auto options = mpi_options_in(folder);
  options.window = {5, 6};
  {
    Timeline timeline(options);
    timeline.set_step(4);
    call(timeline, "MPI_Send", {});
    timeline.set_step(5);
    call(timeline, "MPI_Recv", {});
  }
  EXPECT_EQ(records_of(folder).size(), 1u);
}

TEST(MpiTrace, AKilledCallIsLeftOpen) {
  const TemporaryFolder folder;
  Timeline timeline(mpi_options_in(folder));
  timeline.name_thread("training");
  const MpiTraceSink sink = sink_into(timeline);
  const Span around(timeline, Category::backward, "backward");
  alignas(8) std::byte span[MpiTraceSink::span_bytes];
  ASSERT_TRUE(sink.begin(sink.timeline, Category::communication, "MPI_Recv", span));
  const auto name_of_open = [&] {
    const RecorderFile file(folder / "recorder/rank-0000.ftl");
    return file.names().at(file.open(0)->name);
  };
  EXPECT_EQ(name_of_open(), "MPI_Recv");
  sink.end(span, {});
  EXPECT_EQ(name_of_open(), "backward");
}

}  // namespace
}  // namespace farandole

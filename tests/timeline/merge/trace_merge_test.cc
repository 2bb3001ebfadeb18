#include "farandole/timeline/merge/trace_merge.h"

#include <algorithm>
#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <sys/resource.h>

#include "timeline/gzip/unzipped.h"
#include "timeline/synthetic_run.h"
#include <nlohmann/json.hpp>

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/chrome_trace/trace_writer.h"
#include "farandole/timeline/merge/clock_refinement.h"

namespace farandole {
namespace {

using nlohmann::json;

std::int64_t ns(const json& micros) {
  return std::llround(micros.get<double>() * 1000);
}

using Thread = std::pair<int, int>;  // pid, tid
struct Slice {
  std::int64_t start;
  std::int64_t end;
};

std::map<Thread, std::vector<Slice>> slices_of(const json& trace) {
  std::map<Thread, std::vector<Slice>> slices;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == "X")
      slices[{event["pid"], event["tid"]}].push_back({ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])});
  return slices;
}

void expect_nesting(const json& trace) {
  for (const auto& [thread, slices] : slices_of(trace)) {
    std::vector<Slice> open;
    std::int64_t last = 0;
    for (const Slice& slice : slices) {  // in the order of the file, parents first
      ASSERT_GE(slice.start, last);
      last = slice.start;
      while (!open.empty() && open.back().end <= slice.start) open.pop_back();
      if (!open.empty()) {
        ASSERT_LE(slice.end, open.back().end);
      }
      open.push_back(slice);
    }
  }
}

json merged(const SyntheticRun& run, const TemporaryFolder& folder, MergeResult* result = nullptr,
            const MergeOptions& options = {}) {
  for (int rank = 0; rank < run.ranks; ++rank) run.record(folder.path(), rank);
  const MergeResult merge = run.merge(folder.path(), folder / "timeline.json.gz", options);
  if (result != nullptr) *result = merge;
  return json::parse(unzipped(folder / "timeline.json.gz"));
}

TEST(TraceMerge, HeaderProcessesAndThreads) {
  const TemporaryFolder folder;
  const json trace = merged({}, folder);
  EXPECT_EQ(trace["otherData"]["farandole_trace"], 1);
  EXPECT_EQ(trace["otherData"]["ranks"], 3);
  ASSERT_EQ(trace["otherData"]["clock_residual_us"].size(), 3u);
  EXPECT_EQ(trace["otherData"]["clock_residual_us"][0], 0.0);
  EXPECT_GE(trace["otherData"]["clock_residual_us"][1], 1.0);
  std::vector<int> pids;
  std::map<Thread, std::string> threads;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") {
      pids.push_back(event["pid"]);
      EXPECT_EQ(event["args"]["rank"], pids.back() - 1);
      EXPECT_EQ(event["args"]["name"],
                "rank " + std::to_string(pids.back() - 1) + " · " + event["args"]["host"].get<std::string>());
    }
    if (event["name"] == "thread_name") threads[{event["pid"], event["tid"]}] = event["args"]["name"];
  }
  EXPECT_THAT(pids, testing::ElementsAre(1, 2, 3));
  EXPECT_EQ((threads[{2, 1'001'000}]), "training");
  EXPECT_EQ((threads[{2, 1'001'001}]), "GPU \"0\" stream\\7 \xef\xbf\xbd\n");
}

TEST(TraceMerge, SpansNestAndClocksAgree) {
  const TemporaryFolder folder;
  const SyntheticRun run;
  MergeResult result;
  const json trace = merged(run, folder, &result);
  expect_nesting(trace);
  EXPECT_EQ(result.clipped, static_cast<std::uint64_t>(run.ranks * run.steps));
  EXPECT_EQ(result.events, trace["traceEvents"].size());
  std::int64_t earliest = INT64_MAX;
  int steps = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event.contains("ts")) earliest = std::min(earliest, ns(event["ts"]));
    if (event.value("cat", "") != "step") continue;
    ++steps;
    EXPECT_NEAR(static_cast<double>(ns(event["ts"])),
                static_cast<double>(event["args"]["step"].get<int>() * SyntheticRun::step_ns), 2.0);
    EXPECT_EQ(ns(event["dur"]), 9'000'000);
  }
  EXPECT_EQ(earliest, 0);
  EXPECT_EQ(steps, run.ranks * run.steps);
}

TEST(TraceMerge, WritesEveryRecordOnce) {
  const TemporaryFolder folder;
  const SyntheticRun run;
  std::map<std::string, int> names;
  const json trace = merged(run, folder);
  for (const json& event : trace["traceEvents"]) ++names[event["name"]];
  const int each = run.ranks * run.steps;
  for (const char* name :
       {"data", "layer 1", "forward", "nothing", "backward", "bucket 2", "step", "gemm", "CPU %"})
    EXPECT_EQ(names[name], each) << name;
  EXPECT_EQ(names["memory MiB"], each - run.ranks) << "values that are no number are left out";
  EXPECT_EQ(names["end \"of\" é\xef\xbf\xbdrun\t"], run.ranks);
}

TEST(TraceMerge, FlowsLeadFromTheFirstToArrive) {
  const TemporaryFolder folder;
  const SyntheticRun run;
  MergeResult result;
  const json trace = merged(run, folder, &result);
  std::map<std::pair<Thread, std::int64_t>, int> sequence_at;
  std::map<int, std::int64_t> first_arrival;
  for (const json& event : trace["traceEvents"]) {
    if (event.value("cat", "") != "communication") continue;
    const int sequence = event["args"]["sequence"];
    EXPECT_EQ(event["args"]["operation"], "allreduce");
    EXPECT_EQ(event["args"]["bytes"], 1 << 20);
    sequence_at[{{event["pid"], event["tid"]}, ns(event["ts"])}] = sequence;
    const auto [first, fresh] = first_arrival.emplace(sequence, ns(event["ts"]));
    if (!fresh) first->second = std::min(first->second, ns(event["ts"]));
  }
  std::map<int, json> starts, ends;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "s") {
      ASSERT_TRUE(starts.emplace(event["id"], event).second);
    }
    if (event["ph"] == "f") {
      ASSERT_TRUE(ends.emplace(event["id"], event).second);
    }
  }
  EXPECT_EQ(starts.size(), static_cast<std::size_t>(run.steps * run.buckets * (run.ranks - 1)));
  EXPECT_EQ(starts.size(), result.flows);
  ASSERT_EQ(starts.size(), ends.size());
  const auto sequence_of = [&](const json& event) {
    const auto found = sequence_at.find({{event["pid"], event["tid"]}, ns(event["ts"])});
    EXPECT_NE(found, sequence_at.end()) << event;
    return found != sequence_at.end() ? found->second : -1;
  };
  for (const auto& [id, start] : starts) {
    const json& end = ends.at(id);
    EXPECT_EQ(end["bp"], "e");
    EXPECT_NE(start["pid"], end["pid"]);
    EXPECT_EQ(sequence_of(start), sequence_of(end));
    EXPECT_EQ(ns(start["ts"]), first_arrival[sequence_of(start)]);
  }
}

TEST(TraceMerge, BoundsTheLinksByWholeCollectives) {
  const TemporaryFolder folder;
  SyntheticRun run{.steps = 100};
  MergeResult result;
  const json trace = merged(run, folder, &result, {.most_linked = 100});
  EXPECT_EQ(result.link_stride, 16u);
  EXPECT_EQ(result.flows, 2u * ((300 + 15) / 16));
}

TEST(TraceMerge, BytesFromOtherRanksGiveTheSameTrace) {
  const TemporaryFolder folder;
  const SyntheticRun run;
  merged(run, folder);
  std::vector<RankTimeline> timelines;
  for (int rank = 0; rank < run.ranks; ++rank) {
    std::shared_ptr<RecordSource> far = open_source(run.file(folder.path(), rank));
    RankInfo info = unpack(pack(far->info()));
    auto receive = [far] {
      const auto bytes = std::as_bytes(far->next());
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
    timelines.push_back({received_source(std::move(info), receive), run.clock(rank), true});
  }
  merge_timelines(std::move(timelines), folder / "received.json.gz");
  EXPECT_EQ(unzipped(folder / "received.json.gz"), unzipped(folder / "timeline.json.gz"));
}

TEST(TraceMerge, SalvagesWhatIsThere) {
  const TemporaryFolder folder;
  SyntheticRun run{.steps = 800, .recorder_bytes = 256 << 10};
  for (int rank = 0; rank < run.ranks; ++rank) run.record(folder.path(), rank);
  std::filesystem::resize_file(run.file(folder.path(), 2), 225 << 10);
  std::vector<RankTimeline> timelines;
  timelines.push_back({open_source(run.file(folder.path(), 2)), {}, false});
  timelines.push_back({open_source(run.file(folder.path(), 0)), run.clock(0), true});
  const MergeResult result = merge_timelines(std::move(timelines), folder / "some.json.gz");
  EXPECT_GT(result.overwritten, 0u);
  EXPECT_GT(result.damaged, 0u);
  const json trace = json::parse(unzipped(folder / "some.json.gz"));
  expect_nesting(trace);
  // Rank 2's clock was unknown. Collectives with rank 0 bound it.
  const json& residuals = trace["otherData"]["clock_residual_us"];
  EXPECT_EQ(residuals[0], 0.0);
  EXPECT_TRUE(residuals[1].is_null());
  EXPECT_GT(residuals[2].get<double>(), 0.0);
  EXPECT_LE(residuals[2].get<double>(), 500.0);
  std::set<std::string> labels;
  for (const json& event : trace["traceEvents"])
    if (event["name"] == "process_labels") labels.insert(event["args"]["labels"]);
  EXPECT_THAT(labels, testing::Contains(testing::HasSubstr("damaged")));
}

TEST(TraceMerge, RefusesWhatDoesNotFitTogether) {
  const TemporaryFolder folder;
  const SyntheticRun run;
  EXPECT_THROW(merge_timelines({}, folder / "none.json.gz"), UserError);
  run.record(folder.path(), 0);
  std::vector<RankTimeline> twice;
  for (int i = 0; i < 2; ++i) twice.push_back({open_source(run.file(folder.path(), 0)), {}, true});
  EXPECT_THROW(merge_timelines(std::move(twice), folder / "twice.json.gz"), UserError);
  EXPECT_FALSE(std::filesystem::exists(folder / "twice.json.gz"));
}

TEST(TraceMerge, FailureLeavesNoFile) {
  const TemporaryFolder folder;
  const SyntheticRun run;
  run.record(folder.path(), 0);
  RankInfo info = open_source(run.file(folder.path(), 0))->info();
  std::vector<RankTimeline> timelines;
  timelines.push_back({received_source(info, [] { return std::vector<std::byte>(7); }), {}, true});
  EXPECT_THROW(merge_timelines(std::move(timelines), folder / "out/timeline.json.gz"), Error);
  std::filesystem::create_directory(folder / "out");
  timelines.clear();
  timelines.push_back({received_source(info, [] { return std::vector<std::byte>(7); }), {}, true});
  EXPECT_THROW(merge_timelines(std::move(timelines), folder / "out/timeline.json.gz"), CorruptInput);
  EXPECT_TRUE(std::filesystem::is_empty(folder / "out"));
}

// Every number of a group's first collective is 0, and a program can make many groups.
TEST(TraceMerge, ManyGroupsWithTheSameNumbersAreBounded) {
  const std::vector<std::string> names = {"allreduce"};
  Meetings meetings(names, 1000);
  Record record{};
  for (std::uint32_t sequence = 0; sequence < 2; ++sequence)
    for (std::uint16_t group = 0; group < 3000; ++group) {
      record.sequence = sequence;
      record.communicator = group;
      meetings.add(record);
    }
  const auto kept = std::move(meetings).take();
  EXPECT_EQ(kept.size(), 1000u);
  EXPECT_EQ(kept.back().key, std::uint64_t{999} << 32);
}

TEST(TraceMerge, ADiskThatIsFullFromTheStartLeavesNoFile) {
  const TemporaryFolder folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  EXPECT_THROW(TraceWriter(folder / "t.json.gz", {1, {}}), Error);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TraceMerge, EmptyRankGivesAnEmptyTimeline) {
  const TemporaryFolder folder;
  TimelineOptions options{.file = folder / "rank-0000.ftl"};
  { Timeline timeline(options); }
  std::vector<RankTimeline> timelines;
  timelines.push_back({open_source(options.file), {}, true});
  EXPECT_EQ(merge_timelines(std::move(timelines), folder / "timeline.json.gz").events, 2u);
  EXPECT_TRUE(json::accept(unzipped(folder / "timeline.json.gz")));
}

// Samples of one rank count for all ranks that share its clock. Equal host names alone or equal clock numbers
// alone do not mean that the clock is shared.
TEST(TraceMerge, RanksOfOneClockShareItsSamples) {
  const std::vector<RoundTrip> first{{1000, 501'000, 1100}}, second{{2000, -498'050, 2020}};
  std::vector<std::unique_ptr<RecordSource>> sources;
  const auto add = [&](const char* host, std::uint32_t clock, std::vector<RoundTrip> samples) {
    RankInfo info{.rank = static_cast<int>(sources.size()),
                  .host = host,
                  .clock = clock,
                  .clock_samples = std::move(samples)};
    sources.push_back(received_source(std::move(info), [] { return std::vector<std::byte>(); }));
  };
  add("a", 5, {});
  add("a", 5, {});
  add("b", 6, {});
  add("b", 6, first);
  add("b", 7, second);  // another host with the same name
  add("c", 5, {});
  add("d", 0, first);
  add("d", 0, {});
  const auto ranks = with_clocks(std::move(sources));
  std::vector<bool> known;
  for (const auto& rank : ranks) known.push_back(rank.clock_known);
  EXPECT_EQ(known, (std::vector<bool>{true, true, true, true, true, false, true, false}));
  EXPECT_EQ(ranks[1].clock.to_reference(42), 42);
  EXPECT_EQ(ranks[1].clock.residual_ns(), 0);
  EXPECT_EQ(ranks[2].clock.to_reference(1050), 501'000);
  EXPECT_EQ(ranks[3].clock.to_reference(1050), 501'000);
  EXPECT_EQ(ranks[4].clock.to_reference(2010), -498'050);
}

// Without a measurement, the lowest rank is the reference, and each other clock has one date.
TEST(TraceMerge, RanksOfOneUnknownClockStayTogether) {
  std::vector<std::unique_ptr<RecordSource>> sources;
  const auto add = [&](std::uint32_t clock, std::int64_t date, std::vector<Meeting> meetings) {
    RankInfo info{
        .rank = 2 + static_cast<int>(sources.size()), .host = "a", .clock = clock, .start_realtime_ns = date};
    info.meetings = std::move(meetings);
    sources.push_back(received_source(std::move(info), [] { return std::vector<std::byte>(); }));
  };
  add(5, 1'000, {{1, 0, 100'000}, {2, 200'000, 300'000}});
  add(5, 9'000, {});
  add(6, 50'000, {{1, 1'000'000, 1'090'000}});
  add(6, 70'000, {{2, 1'230'000, 1'300'000}});
  auto ranks = with_clocks(std::move(sources));
  EXPECT_EQ(ranks[1].clock.to_reference(42), 42);
  EXPECT_TRUE(ranks[1].clock_known);
  EXPECT_EQ(ranks[2].clock.to_reference(0), 49'000);
  EXPECT_EQ(ranks[3].clock.to_reference(0), 49'000);
  EXPECT_EQ(refine_clocks_of(ranks), 0U);
  EXPECT_EQ(ranks[2].clock.to_reference(0), ranks[3].clock.to_reference(0));
  EXPECT_NEAR(static_cast<double>(ranks[2].clock.to_reference(0)), -995'000, 60'000);
  EXPECT_LT(ranks[2].clock.residual_ns(), 95'000);
  EXPECT_TRUE(ranks[2].clock_known && ranks[3].clock_known);
}

// Rank 0 holds the sample of all ranks.
TEST(TraceMerge, EachOfManyRanksGivesASmallerSampleOfItsCollectives) {
  const TemporaryFolder folder;
  const auto sampled = [&](int ranks) {
    TimelineOptions options{
        .file = folder / (std::to_string(ranks) + ".ftl"), .recorder_bytes = 4 << 20, .world_size = ranks};
    {
      Timeline timeline(options);
      const NameId name = timeline.intern("allreduce");
      for (std::uint32_t i = 0; i < 20'000; ++i)
        timeline.collective(name, name, {i, 0, 4}, 10 * i, 10 * i + 5);
    }
    std::vector<std::uint64_t> keys;
    const auto source = open_source(options.file);
    for (const auto& meeting : source->info().meetings) keys.push_back(meeting.key);
    return keys;
  };
  EXPECT_EQ(sampled(2).size(), 10'000u);
  const auto keys = sampled(16'384);
  EXPECT_EQ(keys.size(), 625u);
  for (std::size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(keys[i], 32 * i);
}

}  // namespace
}  // namespace farandole

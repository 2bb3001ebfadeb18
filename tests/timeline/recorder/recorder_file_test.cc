#include "farandole/timeline/recorder/recorder_file.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <malloc.h>
#include <random>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "error_message.h"
#include "lane.h"
#include "mutation.h"

#include "farandole/base/error.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/timeline/chrome_trace/trace_reader.h"
#include "farandole/timeline/merge/record_source.h"
#include "farandole/timeline/merge/run_recorders.h"
#include "farandole/timeline/merge/trace_merge.h"
#include "farandole/timeline/timeline.h"

extern "C" std::size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));

namespace farandole {
namespace {

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::filesystem::path& path, const std::string& contents) {
  std::filesystem::remove(path);  // closing a truncated file would flush it to disk
  std::ofstream(path, std::ios::binary) << contents;
}

std::filesystem::path recorded_in(const TemporaryFolder& folder, int events) {
  TimelineOptions options{
      .file = folder / "rank-0000.ftl", .recorder_bytes = recorder::smallest_file, .host = "node1"};
  Timeline timeline(options);
  timeline.name_thread("training");
  for (int i = 0; i < events; ++i) {
    timeline.set_step(i / 10);
    timeline.span(Category::forward, "forward", 1000 + i, 2000 + i);
  }
  timeline.collective(timeline.intern("bucket 0"), timeline.intern("allreduce"), {1, 0, 8}, 1, 2);
  return options.file;
}

// Reads everything. Returns true if no damage was found.
bool reads(const std::filesystem::path& path) {
  try {
    const auto source = open_source(path);
    std::size_t records = 0;
    for (auto block = source->next(); !block.empty(); block = source->next())
      for (const Record& record : block) {
        EXPECT_LT(record.name, source->info().names.size());
        EXPECT_LT(static_cast<std::size_t>(record.category), category_names.size());
        ++records;
      }
    EXPECT_LE(records * sizeof(Record), recorder::smallest_file);
    RecorderFile(path).verify();
    return true;
  } catch (const CorruptInput& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(path.string()));
    EXPECT_THAT(error.what(), testing::HasSubstr("offset"));
    return false;
  }
}

TEST(RecorderFile, NamesWhatIsNoRecorderFile) {
  const TemporaryFolder folder;
  EXPECT_THROW(RecorderFile(folder / "missing"), UserError);
  for (const std::string& contents :
       {std::string(), std::string("F"), std::string("FARANDO1"), std::string(5000, 'x'),
        std::string(5000, '\0'), std::string("{\"traceEvents\":[]}")}) {
    write(folder / "foreign", contents);
    EXPECT_THROW(RecorderFile(folder / "foreign"), CorruptInput);
  }
  EXPECT_ANY_THROW(RecorderFile(folder.path()));
}

TEST(RecorderFile, NamesTheVersionItCannotRead) {
  const TemporaryFolder folder;
  std::string contents = contents_of(recorded_in(folder, 10));
  contents[offsetof(recorder::FixedHeader, version)] = 9;
  write(folder / "new", contents);
  EXPECT_THAT(message_of<CorruptInput>([&] { RecorderFile file(folder / "new"); }),
              testing::HasSubstr("version 9"));
}

TEST(RecorderFile, BelievesNoWorldThatCannotBe) {
  const TemporaryFolder folder;
  const auto sound = recorded_in(folder, 10);
  std::string contents = contents_of(sound);
  contents[offsetof(recorder::FixedHeader, world_size) + 3] = 64;  // 2³⁰ ranks
  write(folder / "damaged", contents);
  const RecorderFile file(folder / "damaged");
  EXPECT_EQ(file.world_size(), file.rank() + 1);
  EXPECT_THROW(file.verify(), CorruptInput);
  EXPECT_EQ(file.records(0).size(), RecorderFile(sound).records(0).size());

  contents[offsetof(recorder::FixedHeader, rank) + 3] = 32;
  write(folder / "damaged", contents);
  EXPECT_THROW(RecorderFile(folder / "damaged"), CorruptInput);
}

TEST(RecorderFile, DamagedRecordIsLeftOutAndNamed) {
  const TemporaryFolder folder;
  const auto path = recorded_in(folder, 20);
  std::string contents = contents_of(path);
  const std::size_t offset = recorder::Geometry(recorder::smallest_file).chunks_offset + 2 * sizeof(Record);
  contents[offset + 5] ^= 4;
  write(path, contents);
  const RecorderFile file(path);
  RecordDamage damage;
  EXPECT_EQ(file.records(0, &damage).size(), 20u);
  EXPECT_EQ(damage.records, 1u);
  EXPECT_EQ(damage.first_offset, static_cast<std::int64_t>(offset));
  EXPECT_THAT(message_of<CorruptInput>([&] { file.verify(); }),
              testing::HasSubstr("offset " + std::to_string(offset)));
}

TEST(RecorderFile, TruncatedFileGivesWhatIsLeft) {
  const TemporaryFolder folder;
  const auto path = recorded_in(folder, 500);
  const std::string contents = contents_of(path);
  const RecorderFile whole(path);
  const auto all = whole.records(0);
  std::size_t last = 0;
  for (std::size_t bytes = 0; bytes <= contents.size(); bytes += 397) {
    write(folder / "cut", contents.substr(0, bytes));
    if (bytes < recorder::Geometry(recorder::smallest_file).chunks_offset) {
      reads(folder / "cut");
      continue;
    }
    const RecorderFile file(folder / "cut");
    RecordDamage damage;
    const auto left = file.records(0, &damage);
    ASSERT_EQ(left.size() + damage.records, all.size());
    ASSERT_GE(left.size(), last);
    last = left.size();
  }
  EXPECT_GT(last, all.size() / 2);
}

// Damages up to 8 bytes of `sound`, mostly in the header, the thread table or the first names.
std::string damaged(const std::string& sound, std::mt19937_64& random) {
  std::string contents = sound;
  const std::size_t tables = recorder::Geometry(recorder::smallest_file).chunks_offset;
  const int damages = 1 + static_cast<int>(random() % 8);
  for (int i = 0; i < damages; ++i) {
    const std::size_t range = random() % 4 == 0 ? contents.size() : random() % 2 == 0 ? 4096 + 700 : tables;
    const std::size_t at = random() % range;
    switch (random() % 3) {
      case 0:
        contents[at] = static_cast<char>(contents[at] ^ (1 << random() % 8));
        break;
      case 1:
        contents[at] = static_cast<char>(random());
        break;
      default:
        for (std::size_t byte = at; byte < std::min(at + 8, contents.size()); ++byte) contents[byte] = '\xff';
    }
  }
  if (random() % 10 == 0) contents.resize(random() % contents.size());
  return contents;
}

// Salvages as `farandole timeline salvage` does. Returns false if nothing can be read.
bool salvages(const std::filesystem::path& path, const std::filesystem::path& trace) {
  RunRecorders run;
  try {
    run = open_run(recorder_files(path), {});
  } catch (const CorruptInput& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("offset"));
    return false;
  }
  merge_timelines(std::move(run.ranks), trace);
  struct : TraceVisitor {
  } nobody;
  const TraceSummary summary = read_trace(trace, nobody);
  EXPECT_EQ(summary.damaged, 0u);
  EXPECT_THAT(summary.warnings, testing::IsEmpty());
  return true;
}

// Resources that this process holds: bytes of its heap and open files.
struct Holdings {
  std::size_t bytes = 0;
  long files = 0;
  static Holdings now() {
    const auto files = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
    // AddressSanitizer has its own heap.
    return {__sanitizer_get_current_allocated_bytes != nullptr ? __sanitizer_get_current_allocated_bytes()
                                                               : ::mallinfo2().uordblks,
            files};
  }
};

TEST(RecorderFile, SurvivesRandomDamage) {
  const TemporaryFolder folder;
  std::mt19937_64 random(seed(42));
  const std::string sound = contents_of(recorded_in(folder, 3000));
  const int damages = rounds(320, 20'000);  // each is read; every 16th is also salvaged and merged
  int refused = 0;
  Holdings before;
  for (int round = 0; round < damages; ++round) {
    if (round == damages / 4) before = Holdings::now();
    write(folder / "damaged", damaged(sound, random));
    const bool whole = reads(folder / "damaged");
    refused += !whole;
    if (round % 16 == 0) {
      const bool salvaged = salvages(folder / "damaged", folder / "trace.json.gz");
      EXPECT_TRUE(salvaged || !whole);
    }
  }
  EXPECT_GT(refused, damages / 20);
  const Holdings after = Holdings::now();
  EXPECT_LE(after.bytes, before.bytes + (std::size_t{256} << 10));
  EXPECT_EQ(after.files, before.files);
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  if (__sanitizer_get_current_allocated_bytes == nullptr) {
    EXPECT_LE(used.ru_maxrss, 200 << 10) << "KiB";
  }
}

// The writer has a bug, or somebody has made the file: all checks are right, but a field is not.
TEST(RecorderFile, SurvivesWrongFieldsWithRightChecks) {
  const TemporaryFolder folder;
  std::mt19937 random(seed(20261124));
  constexpr int events = 20;
  const auto path = recorded_in(folder, events);
  const std::string sound = contents_of(path);
  constexpr recorder::Geometry layout(recorder::smallest_file);
  const auto place = [&](std::string& contents, std::size_t index) {
    return contents.data() + layout.chunks_offset + index * sizeof(Record);
  };
  for (int round = 0; round < rounds(200, 100'000); ++round) {
    std::string contents = sound;
    const std::size_t index = random() % layout.chunk_records;  // Of the first chunk; others lie elsewhere.
    Record record;
    std::memcpy(&record, place(contents, index), sizeof record);
    for (auto changes = 1 + random() % 3; changes > 0; --changes)
      reinterpret_cast<char*>(&record)[random() % offsetof(Record, check)] =
          static_cast<char>(random() % (random() % 2 ? 256 : 8));
    record.check = record_check(record, index);
    std::memcpy(place(contents, index), &record, sizeof record);
    write(path, contents);
    reads(path);
    RunRecorders run = open_run(recorder_files(path), {});
    merge_timelines(std::move(run.ranks), folder / "trace.json");
  }
}

// The record is left out, and its file and offset are named. The other 20 are there.
TEST(RecorderFile, NamesTheRecordWithAWrongFieldAndARightCheck) {
  const TemporaryFolder folder;
  constexpr int events = 20;
  constexpr std::size_t index = 3;  // In the first chunk.
  const auto path = recorded_in(folder, events);
  const std::string sound = contents_of(path);
  const std::size_t offset =
      recorder::Geometry(recorder::smallest_file).chunks_offset + index * sizeof(Record);
  const std::vector<std::function<void(Record&)>> mistakes = {
      [](Record& record) { record.kind = RecordKind::none; },
      [](Record& record) { record.kind = static_cast<RecordKind>(77); },
      [](Record& record) { record.category = static_cast<Category>(category_names.size()); },
      [](Record& record) { record.track = recorder::thread_slots; },
      [](Record& record) { record.name = 1'000'000; },
      [](Record& record) { record.operation = 1'000'000; },
      [](Record& record) { record.start_ns = INT64_MIN; },
      [](Record& record) { record.end_ns = INT64_MAX; }};
  for (std::size_t i = 0; i < mistakes.size(); ++i) {
    std::string contents = sound;
    Record record;
    std::memcpy(&record, contents.data() + offset, sizeof record);
    mistakes[i](record);
    record.check = record_check(record, index);
    std::memcpy(contents.data() + offset, &record, sizeof record);
    write(path, contents);
    RunRecorders run = open_run(recorder_files(path), {});
    ASSERT_EQ(run.files.size(), 1u);
    EXPECT_EQ(run.files[0].damaged, 1u) << "mistake " << i;
    ASSERT_EQ(run.files[0].problems.size(), 1u) << "mistake " << i;
    EXPECT_THAT(run.files[0].problems[0], testing::AllOf(testing::HasSubstr(path.string()),
                                                         testing::HasSubstr(std::to_string(offset))));
    EXPECT_EQ(run.files[0].records, std::uint64_t{events}) << "mistake " << i;
    EXPECT_NO_THROW(merge_timelines(std::move(run.ranks), folder / "trace.json")) << "mistake " << i;
  }
}

TEST(RecordSource, PackedInfoComesBack) {
  RankInfo info{.rank = 2, .world_size = 5, .host = "node \xff", .first_ns = 123, .dropped = 1, .damaged = 2};
  info.names = {"(unnamed)", "bucket 0", "\xc3\xa9"};
  info.threads = {{"training", 10, 3}, {"", 0, 0}};
  const auto bytes = pack(info);
  const RankInfo back = unpack(bytes);
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.host, info.host);
  EXPECT_EQ(back.first_ns, 123);
  EXPECT_EQ(back.names, info.names);
  ASSERT_EQ(back.threads.size(), 2u);
  EXPECT_EQ(back.threads[0].overwritten, 3u);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(unpack(std::span(bytes).first(length)), CorruptInput);
}

TEST(RecordSource, RefusesBlocksThatAreNoRecords) {
  RankInfo info;
  info.names = {"a"};
  info.threads = {{"training", 1, 0}};
  for (const std::size_t bytes : {std::size_t{63}, largest_block_bytes + 64, std::size_t{64}}) {
    const auto source = received_source(info, [&] { return std::vector<std::byte>(bytes, std::byte{0x7f}); });
    EXPECT_THROW(source->next(), CorruptInput);
  }
}

TEST(RecorderFile, TellsWhatAThreadIsInTheMiddleOf) {
  const TemporaryFolder folder;
  TimelineOptions options{.file = folder / "rank-0000.ftl", .recorder_bytes = recorder::smallest_file};
  Timeline timeline(options), off;
  options.file = folder / "another.ftl";
  Timeline another(options);
  options.file = folder / "rank-0000.ftl";
  timeline.name_thread("training");
  const auto open = [&] {
    const RecorderFile file(options.file);
    const auto event = file.open(0);
    return event ? file.names()[event->name] : "";
  };
  const auto bucket = timeline.intern("bucket 0"), allreduce = timeline.intern("allreduce");
  EXPECT_EQ(open(), "");
  {
    const Span step(timeline, Category::step, "step");
    EXPECT_EQ(open(), "step");
    {
      const Span elsewhere(another, Category::data, "elsewhere");
      const Span unrecorded(off, Category::data, "unrecorded");
      const Span wait(timeline, Category::wait, "wait");
      EXPECT_EQ(RecorderFile(options.file).open(0)->category, Category::wait);
      timeline.begin_collective(bucket, allreduce, {7, 1, 64}, 5);
      const auto event = RecorderFile(options.file).open(0);
      EXPECT_EQ(open(), "bucket 0");
      EXPECT_EQ(event->kind, RecordKind::collective);
      EXPECT_EQ(event->sequence, 7u);
      EXPECT_EQ(event->communicator, 1);
      EXPECT_EQ(event->start_ns, 5);
      timeline.collective(bucket, allreduce, {7, 1, 64}, 5, 6);
      EXPECT_EQ(open(), "wait");
    }
    EXPECT_EQ(open(), "") << "the enclosing span is another timeline's";
    timeline.collective(bucket, allreduce, {8, 1, 64}, 5, 6);
    EXPECT_EQ(open(), "step");
  }
  EXPECT_EQ(open(), "");
  const TrackId track = timeline.add_track("reductions");
  timeline.begin_collective_on(track, bucket, allreduce, {9, 1, 64}, 5);
  EXPECT_EQ(RecorderFile(options.file).open(track.value)->sequence, 9u);
  EXPECT_EQ(open(), "");
  timeline.collective_on(track, bucket, allreduce, {9, 1, 64}, 5, 6);
  EXPECT_FALSE(RecorderFile(options.file).open(track.value));
  EXPECT_FALSE(RecorderFile(options.file).open(1000));
}

}  // namespace
}  // namespace farandole

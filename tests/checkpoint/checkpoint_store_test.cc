#include "farandole/checkpoint/checkpoint_store.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/checkpoint_fixtures.h"
#include "error_message.h"
#include "lane.h"

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/run/run_files.h"
#include "farandole/checkpoint/checkpoint_file.h"

namespace farandole {
namespace {

using namespace ::testing;

Snapshot scored(std::int64_t step, double score) {
  auto snapshot = random_snapshot(step, static_cast<std::uint64_t>(step));
  snapshot.score = score;
  return snapshot;
}

std::vector<std::int64_t> steps_in(const std::filesystem::path& folder) {
  std::vector<std::int64_t> steps;
  for (const auto& info : list_checkpoints(folder)) steps.push_back(info.step);
  return steps;
}

struct CheckpointStoreTest : testing::Test {
  const TemporaryFolder folder;
  Timeline timeline;
};

TEST_F(CheckpointStoreTest, NamesSortAsSteps) {
  EXPECT_EQ(checkpoint_name(1200), "step-00001200.h5");
  EXPECT_EQ(checkpoint_name(0), "step-00000000.h5");
  EXPECT_EQ(checkpoint_name(123456789012), "step-123456789012.h5");
}

TEST_F(CheckpointStoreTest, SavesInTheBackgroundWhatTheCallerGave) {
  // Saves follow each other, so that each one meets the write of the previous one. The end finishes the last.
  {
    CheckpointStore store({folder / "run/checkpoints", 10}, timeline);
    for (std::int64_t step = 1; step <= 8; ++step) store.save(scored(step, 1));
  }
  EXPECT_THAT(steps_in(folder / "run/checkpoints"), ElementsAre(8, 7, 6, 5, 4, 3, 2, 1));
  for (std::int64_t step = 1; step <= 8; ++step)
    expect_same(scored(step, 1), read_checkpoint(folder / "run/checkpoints" / checkpoint_name(step)));
}

TEST_F(CheckpointStoreTest, KeepsTheLastTheBestTheFirstOfEverySoManyStepsAndWhatItWrote) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  struct Case {
    int keep_last;
    std::int64_t keep_every;
    std::vector<std::int64_t> steps;
    std::vector<double> scores;  // The others have none.
    std::vector<std::int64_t> kept;
  };
  const Case cases[] = {
      {2, 0, {0, 1, 2, 3, 4, 5, 6}, {nan, 0.5, 0.2, nan, 0.3, 0.4}, {6, 5, 2}},
      {2, 0, {0, 1, 2, 3, 4}, {nan, 0.5, 0.2, 0.3, 0.1}, {4, 3}},
      {1, 10, {4, 8, 12, 16, 20, 24, 40, 44, 49, 50, 53}, {}, {53, 50, 40, 20, 12}},
      {2, 0, {100, 101, 102, 5}, {}, {102, 101, 5}},
  };
  for (const auto& [keep_last, keep_every, steps, scores, kept] : cases) {
    const TemporaryFolder own;
    CheckpointStore store({.folder = own.path(), .keep_last = keep_last, .keep_every = keep_every}, timeline);
    for (std::size_t i = 0; i < steps.size(); ++i)
      store.save(scored(steps[i], i < scores.size() ? scores[i] : nan));
    store.wait();
    EXPECT_EQ(steps_in(own.path()), kept);
  }
}

TEST_F(CheckpointStoreTest, PublishesNothingWhileItIsNotKnownWhoseTheFolderIs) {
  bool answers = true;
  CheckpointStore store(
      {.folder = folder.path(),
       .keep_last = 1,
       .may_write = [&] { return answers ? true : throw Error("look: Too many open files"); }},
      timeline);
  store.save(scored(1, 1));
  store.wait();
  answers = false;
  store.save(scored(2, 0.5));
  EXPECT_THAT(message_of<Error>([&] { store.wait(); }), HasSubstr("Too many open files"));
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(1));
  answers = true;
  store.save(scored(3, 0.2));
  store.wait();
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(3));
}

TEST_F(CheckpointStoreTest, NeverRemovesAFiniteCheckpointForOneThatIsNot) {
  CheckpointStore store({folder.path(), 2}, timeline);
  for (const std::int64_t step : {1, 2, 3}) store.save(scored(step, 1.0 / static_cast<double>(step)));
  std::int64_t step = 4;
  for (const auto& [dtype, infinity] :
       {std::pair{DType::float16, 0x7c00}, std::pair{DType::bfloat16, 0x7f80},
        std::pair{DType::float32, 0x7f80}, std::pair{DType::float64, 0x7ff0}}) {
    auto bad = scored(step++, 0);
    auto& bytes = bad.arrays.emplace_back(Array{"/model/bad", dtype, {3}, {}}).bytes;
    bytes.assign(3 * size_of(dtype) - 2, std::byte{0});
    for (const int byte : {infinity & 0xff, infinity >> 8}) bytes.push_back(static_cast<std::byte>(byte));
    store.save(bad);
    store.wait();
    EXPECT_THAT(steps_in(folder.path()), ElementsAre(bad.step, 3, 2)) << name_of(dtype);
    EXPECT_EQ(list_checkpoints(folder.path()).front().not_finite, "/model/bad");
    EXPECT_EQ(newest_valid_checkpoint(folder.path())->step, 3);
  }
  // Files of earlier versions lack the attribute.
  auto old = scored(50, 0);
  old.arrays.push_back({"/model/bad", DType::float32, {}, {}});
  old.arrays.back().bytes.assign(4, std::byte{0xff});
  write_checkpoint(folder / checkpoint_name(50), old);
  EXPECT_EQ(newest_valid_checkpoint(folder.path())->step, 3);
  EXPECT_EQ(read_checkpoint(folder / checkpoint_name(50)).not_finite, "/model/bad");
}

TEST_F(CheckpointStoreTest, LeavesOtherFilesAndOrdersByNumber) {
  for (const auto* name : {"step-x.h5", "step-.h5", "step-00000001.h5.bak", "best.h5", "step--0000001.h5"})
    write_contents(folder / name, "text");
  CheckpointStore store({folder.path(), 1}, timeline);
  store.save(scored(99'999'999, NAN));
  store.save(scored(100'000'000, NAN));
  store.wait();
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(100'000'000));
  EXPECT_EQ(names_in(folder.path()).size(), 6u);
}

TEST_F(CheckpointStoreTest, ASnapshotThatCannotBeWrittenIsLostWithoutTheOthers) {
  CheckpointStore store({folder.path(), 3}, timeline);
  for (const std::int64_t step : {1, 2, 3, 4}) store.save(scored(step, step == 3 ? 0 : 1));
  store.wait();
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(4, 3, 2));
  Snapshot bad{.step = 5};
  bad.arrays = {Array{"no slash", DType::uint8, {}, Bytes(1)}};
  store.save(bad);
  EXPECT_THROW(store.wait(), Error);
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(4, 3, 2));
  store.wait();  // reported only once
  store.save(bad);
  store.save(scored(6, 1));
  store.wait();
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(6, 4, 3));
  store.save(bad);  // its failure is logged
}

// Only a full disk or quota makes room for fewer checkpoints. Any failed write is tried again, which
// is said once.
TEST_F(CheckpointStoreTest, RemovesGoodCheckpointsOnlyIfSpaceIsLacking) {
  for (const auto& [error, kept] :
       std::vector<std::pair<int, std::vector<std::int64_t>>>{{ENOSPC, {4, 3}},
                                                              {EDQUOT, {4, 3}},
                                                              {EIO, {4, 3, 2, 1}},
                                                              {EROFS, {4, 3, 2, 1}},
                                                              {EFBIG, {4, 3, 2, 1}}}) {
    const TemporaryFolder own;
    int failures = 0;
    CheckpointStore store({.folder = own.path(),
                           .keep_last = 9,
                           .may_write =
                               [&, number = error] {
                                 errno = number;
                                 return failures-- > 0 ? throw system_error("write", "it") : true;
                               }},
                          timeline);
    for (const std::int64_t step : {1, 2, 3}) {
      store.save(scored(step, NAN));
      store.wait();
    }
    failures = 1;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    store.save(scored(4, NAN));
    store.wait();
    const auto said = testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr();
    EXPECT_EQ(steps_in(own.path()), kept) << std::strerror(error);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_THAT(said, HasSubstr("the checkpoint of step 4 was written at the second attempt"));
  }
}

// Bytes may still come from a device when the snapshot is given away.
TEST_F(CheckpointStoreTest, CompletesASnapshotBeforeItReadsIt) {
  CheckpointStore store({folder.path(), 10}, timeline);
  auto snapshot = scored(3, 1);
  const auto bytes = std::as_writable_bytes(std::span(snapshot.arrays[0].bytes));
  const std::vector<std::byte> later(bytes.begin(), bytes.end());
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  auto resource = std::make_shared<int>(1);
  const std::weak_ptr<int> destroyed = resource;
  store.save(std::move(snapshot), [bytes, later, resource = std::move(resource)] {
    std::copy(later.begin(), later.end(), bytes.begin());
  });
  store.wait();
  EXPECT_TRUE(destroyed.expired());
  expect_same(scored(3, 1), read_checkpoint(folder / checkpoint_name(3)));
}

TEST_F(CheckpointStoreTest, WritesWithLessPriorityThanThreadsThatTrain) {
  CheckpointStore store({folder.path(), 1}, timeline);
  const auto niceness = [] { return ::getpriority(PRIO_PROCESS, 0); };  // of the calling thread
  const int own = niceness();
  int of_writer = 0;
  store.save(scored(1, 1), [&] { of_writer = niceness(); });
  store.wait();
  EXPECT_EQ(of_writer, std::max(own, 10));
  EXPECT_EQ(niceness(), own);
}

// Nothing is wrong with the disk then, so no other checkpoint is removed.
TEST_F(CheckpointStoreTest, ASnapshotThatCannotBeCompletedIsLostAlone) {
  CheckpointStore store({folder.path(), 10}, timeline);
  for (int step : {1, 2, 3}) store.save(scored(step, 1));
  store.save(scored(4, 1), [] { throw Error("the device has failed"); });
  EXPECT_EQ(message_of<Error>([&] { store.wait(); }),
            "the checkpoint of step 4 is lost: the device has failed");
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(3, 2, 1));
  store.save(scored(5, 1));
  store.wait();
  EXPECT_THAT(steps_in(folder.path()), ElementsAre(5, 3, 2, 1));
}

TEST_F(CheckpointStoreTest, ChecksItsOptions) {
  EXPECT_THROW(CheckpointStore({folder.path(), 0}, timeline), UserError);
  write_contents(folder / "file", "");
  EXPECT_THROW(CheckpointStore({folder / "file", 1}, timeline), Error);
}

TEST_F(CheckpointStoreTest, RemovesTemporaryFilesOfDeadWritersOnly) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const auto child = ::fork();  // a process that has certainly ended
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  const auto living = ".step-00000003.h5." + std::string(host) + "." + std::to_string(::getppid()) + ".tmp";
  write_contents(folder / living, "x");
  write_contents(folder / (".step-00000002.h5." + std::string(host) + "." + std::to_string(child) + ".tmp"),
                 "x");
  const AtomicFile unfinished(folder / "step-00000001.h5");
  write_contents(folder / ".step-00000001.h5.elsewhere.example.1.tmp", "x");
  write_contents(folder / ".step-.tmp", "x");
  write_contents(folder / ".other.tmp", "x");
  const CheckpointStore store({folder.path(), 1}, timeline);
  EXPECT_THAT(names_in(folder.path()), testing::UnorderedElementsAre(living, ".other.tmp"));
}

TEST_F(CheckpointStoreTest, TheNewestValidOnePassesOverDamagedOnes) {
  EXPECT_EQ(newest_valid_checkpoint(folder.path()), std::nullopt);
  EXPECT_EQ(newest_valid_checkpoint(folder / "absent"), std::nullopt);
  for (const std::int64_t step : {1, 2, 3, 4})
    write_checkpoint(folder / checkpoint_name(step), scored(step, 1));
  write_contents(folder / checkpoint_name(5), "not HDF5");
  write_contents(folder / checkpoint_name(4), contents_of(folder / checkpoint_name(4)).substr(0, 3000));
  // Damages only the data of an array. The attributes are unchanged.
  auto damaged = contents_of(folder / checkpoint_name(3));
  const auto bytes = scored(3, 1).find("/rng/rank-0000")->bytes;
  const auto place = damaged.find(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  ASSERT_NE(place, std::string::npos);
  damaged[place + 100] = static_cast<char>(damaged[place + 100] ^ 1);
  write_contents(folder / checkpoint_name(3), damaged);

  EXPECT_THAT(steps_in(folder.path()), ElementsAre(3, 2, 1));
  const auto newest = newest_valid_checkpoint(folder.path());
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->step, 2);
  EXPECT_EQ(newest->bytes, std::filesystem::file_size(newest->file));

  for (const std::int64_t step : {1, 2}) std::filesystem::remove(folder / checkpoint_name(step));
  EXPECT_THROW(newest_valid_checkpoint(folder.path()), CorruptInput);
}

// A process that saves one step after another until it is killed.
[[noreturn]] void write_for_ever(const std::filesystem::path& folder, std::int64_t first, int ready) try {
  Timeline timeline;
  CheckpointStore store({folder, 2}, timeline);
  for (std::int64_t step = first;; ++step) {
    store.save(scored(step, 1));
    store.wait();
    [[maybe_unused]] const auto sent = ::write(ready, "x", 1);
  }
} catch (...) {
  ::_exit(1);  // must not continue with the other tests
}

TEST_F(CheckpointStoreTest, KilledWriterLeavesAValidNewest) {
  std::mt19937_64 random(seed(31));
  std::int64_t last = 0;
  for (int round = 0; round < rounds(12, 25); ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const auto child = ::fork();
    if (child == 0) write_for_ever(folder.path(), last + 1, ends[1]);
    ::close(ends[1]);
    char byte;
    const auto published = 1 + random() % 3;
    for (std::uint64_t i = 0; i < published; ++i) ASSERT_EQ(::read(ends[0], &byte, 1), 1);
    // Kills at a random moment of the next write, which takes some milliseconds.
    const auto until = now_ns() + static_cast<std::int64_t>(random() % 8'000'000);
    while (now_ns() < until) {
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ends[0]);
    const auto newest = newest_valid_checkpoint(folder.path());
    ASSERT_TRUE(newest.has_value());
    EXPECT_GE(newest->step, last + static_cast<std::int64_t>(published));
    EXPECT_EQ(newest->file, checkpoint_files(folder.path()).front());  // no published file is damaged
    expect_same(scored(newest->step, 1), read_checkpoint(newest->file));
    last = newest->step;
  }
  const CheckpointStore store({folder.path(), 2}, timeline);
  for (const auto& name : names_in(folder.path())) EXPECT_THAT(name, testing::Not(HasSubstr(".tmp")));
}

}  // namespace
}  // namespace farandole

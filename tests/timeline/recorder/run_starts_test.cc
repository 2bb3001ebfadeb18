#include "farandole/timeline/recorder/run_starts.h"

#include <array>
#include <atomic>
#include <csignal>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>
#include <new>
#include <random>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "hang.h"
#include "lane.h"

#include "farandole/base/clock.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/run/earlier_starts.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/run_timeline.h"

namespace farandole {
namespace {

using testing::HasSubstr;
using Part = Goodput::Part;

constexpr std::int64_t last_step = 40, save_every = 7;

// When something began and ended by the watch of the training itself, before and after the recorder saw it.
// 0: it was killed before.
struct Noted {
  std::int64_t step = -1;
  bool saves = false, restores = false;
  std::int64_t before = 0, began = 0, ending = 0, ended = 0;
};

struct Notes {
  std::atomic<bool> recording = false;
  std::atomic<int> count = 0;
  std::array<Noted, 200> all;
};

class Training {
 public:
  Training(const TemporaryFolder& run, Notes& notes, unsigned seed)
      : run_(run), notes_(notes), random_(seed) {}

  [[noreturn]] void train() {
    end_if_it_hangs(300);
    const auto newest = newest_checkpoint(run_.path());
    const auto from = newest.empty() ? 0 : *step_of_checkpoint(newest);
    keep_earlier_start(run_.path());
    {
      auto options = run_timeline(run_.path());
      options.recorder_bytes = 1 << 20;
      Timeline timeline(options);
      timeline.name_thread("training");
      notes_.recording = true;
      work(1);
      if (from > 0) checkpoint(timeline, {.step = from, .restores = true});
      for (auto step = from; step < last_step; ++step) {
        auto& noted = note({.step = step});
        noted.before = real_time_ns();
        timeline.set_step(step);
        {
          const Span span(timeline, Category::step, "step");
          noted.began = real_time_ns();
          work(2);
        }
        if ((step + 1) % save_every == 0) checkpoint(timeline, {.step = step + 1, .saves = true});
      }
      timeline.set_step(-1);
    }
    ::_exit(0);
  }

 private:
  Noted& note(const Noted& noted) {
    const auto index = static_cast<std::size_t>(notes_.count.load());
    notes_.all.at(index) = noted;
    ++notes_.count;
    return notes_.all[index];
  }
  void work(double most_ms) {
    std::this_thread::sleep_for(
        std::chrono::duration<double, std::milli>(std::uniform_real_distribution(0.0, most_ms)(random_)));
  }
  void checkpoint(Timeline& timeline, const Noted& what) {
    auto& noted = note(what);
    noted.before = real_time_ns();
    {
      const Span span(timeline, Category::checkpoint, "checkpoint");
      const Span inner(timeline, Category::checkpoint, "write");  // counts once
      noted.began = real_time_ns();
      work(1);
      if (what.saves) {
        std::filesystem::create_directories(run_ / "checkpoints");
        std::ofstream(run_ / fmt::format("checkpoints/step-{:08}.h5", what.step)) << "x";
      }
      noted.ending = real_time_ns();
    }
    noted.ended = real_time_ns();
  }

  const TemporaryFolder& run_;
  Notes& notes_;
  std::mt19937 random_;
};

struct Bounds {
  double least = 0, most = 0;  // seconds
  void add(std::int64_t least_ns, std::int64_t most_ns) {
    least += static_cast<double>(std::max<std::int64_t>(0, least_ns)) * 1e-9;
    most += static_cast<double>(std::max<std::int64_t>(0, most_ns)) * 1e-9;
  }
};

// What the trainings have noted about one start.
struct History {
  std::int64_t begin_ns = 0, end_ns = 0;
  std::vector<Noted> notes;

  std::int64_t first_step() const {
    for (const auto& one : notes)
      if (one.step >= 0 && !one.saves && !one.restores) return one.step;
    return -1;
  }
  // The last moment for which there is a record for certain.
  std::int64_t known_work() const {
    std::int64_t last = begin_ns;
    for (const auto& one : notes) last = std::max({last, one.saves || one.restores ? one.ended : one.began});
    return last;
  }
};

std::array<Bounds, Goodput::parts> bounds_of(const std::vector<History>& starts) {
  std::array<Bounds, Goodput::parts> bounds;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto& start = starts[i];
    const bool is_last = i + 1 == starts.size();
    std::int64_t again = INT64_MAX;  // from this step on, a later start did the steps again
    for (auto later = i + 1; later < starts.size(); ++later)
      if (starts[later].first_step() >= 0) again = std::min(again, starts[later].first_step());
    Bounds restoring;
    std::int64_t first_before = 0, first_began = 0, lost_before = 0, lost_began = 0;
    const auto or_end = [&](std::int64_t ns) { return ns != 0 ? ns : start.end_ns; };
    for (const auto& one : start.notes) {
      if (one.restores)
        restoring.add(one.ended != 0 ? one.ending - one.began : 0, or_end(one.ended) - one.before);
      if (one.saves && one.step <= again)
        bounds[Part::saving].add(one.ended != 0 ? one.ending - one.began : 0, or_end(one.ended) - one.before);
      if (one.saves || one.restores) continue;
      if (first_before == 0) first_before = one.before, first_began = or_end(one.began);
      if (one.step == again) lost_before = one.before, lost_began = or_end(one.began);
    }
    bounds[Part::restoring].least += restoring.least;
    bounds[Part::restoring].most += restoring.most;
    const auto restored = [](double seconds) { return static_cast<std::int64_t>(seconds * 1e9); };
    const auto work = start.known_work();
    if (first_before == 0) first_before = work, first_began = start.end_ns;
    bounds[Part::start_up].add(first_before - start.begin_ns - restored(restoring.most),
                               first_began - start.begin_ns - restored(restoring.least));
    bounds[is_last ? Part::start_up : Part::restarts].add(0, start.end_ns - work);
    if (lost_before != 0) bounds[Part::lost_steps].add(work - lost_began, start.end_ns - lost_before);
    if (!is_last) {
      const auto gap = starts[i + 1].begin_ns - start.end_ns;
      bounds[Part::restarts].add(gap, gap);
    }
  }
  return bounds;
}

void write_job(const TemporaryFolder& run, std::int64_t begin_ns, std::int64_t end_ns) {
  std::filesystem::create_directories(run / "launch");
  std::ofstream(run / "launch/job.json")
      << fmt::format(R"({{"start_ns":{},{}"ranks":1,"host":"here","pid":7,"slurm":{{}}}})", begin_ns,
                     end_ns != 0 ? fmt::format("\"end_ns\":{},", end_ns) : "");
}

// Trainings that are killed at random moments and continue from their newest checkpoint.
class KilledTrainings {
 public:
  explicit KilledTrainings(unsigned seed) : random_(seed) {
    notes_ = static_cast<Notes*>(
        ::mmap(nullptr, sizeof(Notes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~KilledTrainings() { ::munmap(notes_, sizeof(Notes)); }

  std::vector<History> train(const TemporaryFolder& run) {
    std::vector<History> starts;
    const auto kills = random_() % 4;
    for (unsigned i = 0;; ++i) {
      new (notes_) Notes;
      const auto begin = real_time_ns();
      keep_earlier_job(run / "launch");
      write_job(run, begin, 0);
      const auto seed = random_();
      const pid_t rank = ::fork();
      if (rank == 0) Training(run, *notes_, static_cast<unsigned>(seed)).train();
      while (!notes_->recording && ::waitpid(rank, nullptr, WNOHANG) == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (i < kills) {
        std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 60));
        ::kill(rank, SIGKILL);
      }
      ::waitpid(rank, nullptr, 0);
      const auto end = real_time_ns();
      write_job(run, begin, end);
      starts.push_back({begin, end, {notes_->all.begin(), notes_->all.begin() + notes_->count.load()}});
      if (i >= kills) return starts;
    }
  }

 private:
  Notes* notes_;
  std::mt19937 random_;
};

TEST(RunStarts, AddUpOverRandomKills) {
  for (unsigned seed = 1; seed <= static_cast<unsigned>(rounds(8, 40)); ++seed) {
    const TemporaryFolder run;
    const auto starts = KilledTrainings(seed).train(run);
    const auto goodput = goodput_of(read_run_starts(run.path()));
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << goodput_text(goodput));
    ASSERT_EQ(goodput.unknown + goodput.left_out, "");
    ASSERT_EQ(goodput.starts, starts.size());
    const auto allocated = static_cast<double>(starts.back().end_ns - starts.front().begin_ns) * 1e-9;
    EXPECT_NEAR(goodput.allocated_rank_s(), allocated, 0.005 * allocated);
    EXPECT_EQ(goodput.between_jobs_s, 0);
    const auto bounds = bounds_of(starts);
    double others = 0;
    for (std::size_t part = Part::lost_steps; part < Goodput::parts; ++part) {
      EXPECT_GE(goodput.rank_s[part], bounds[part].least - 0.005 * allocated) << part;
      EXPECT_LE(goodput.rank_s[part], bounds[part].most + 0.005 * allocated) << part;
      others += goodput.rank_s[part];
    }
    EXPECT_GT(goodput.rank_s[Part::productive], 0);
    EXPECT_NEAR(goodput.rank_s[Part::productive], allocated - others, 0.005 * allocated);
  }
}

// Records `steps` steps from `first` on, and ends.
void record(const TemporaryFolder& run, std::int64_t first, std::int64_t steps, std::size_t size = 1 << 20) {
  keep_earlier_start(run.path());
  auto options = run_timeline(run.path());
  options.recorder_bytes = size;
  Timeline timeline(options);
  for (auto step = first; step < first + steps; ++step) {
    timeline.set_step(step);
    const Span span(timeline, Category::step, "step");
  }
}

TEST(RunStarts, KnowTheirTotalsAlsoIfRecordsAreOverwritten) {
  const TemporaryFolder run;
  record(run, 3, 100'000, 128 << 10);
  const auto starts = read_run_starts(run.path());
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].first_step, 3);
  EXPECT_LE(starts[0].first_step_ns, starts[0].worked_ns);
  EXPECT_EQ(starts[0].unknown, "");
}

TEST(RunStarts, SayWhatIsMissing) {
  const TemporaryFolder run;
  EXPECT_TRUE(read_run_starts(run.path()).empty());
  record(run, 0, 100'000, 128 << 10);
  record(run, 5, 10);
  record(run, 15, 10);
  auto starts = read_run_starts(run.path());
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_EQ(starts[0].name, "starts/0001");
  EXPECT_THAT(starts[0].unknown, HasSubstr("does not reach back to step 5"));
  EXPECT_EQ(starts[1].unknown, "");
  EXPECT_EQ(starts[1].lost_ns, 0) << "the last start went on where it ended";
  std::filesystem::remove_all(run / "starts/0002/recorder");
  starts = read_run_starts(run.path());
  EXPECT_THAT(starts[1].unknown, HasSubstr("no flight recorder"));
  EXPECT_THAT(starts[0].unknown, HasSubstr("not known from which step"));
  EXPECT_EQ(starts[2].unknown, "");
  std::ofstream(run / "run.json") << R"({"program": "python3 train.py", "restarts": 1})";
  starts = read_run_starts(run.path());
  ASSERT_EQ(starts.size(), 2u) << "the first start was another run";
  EXPECT_EQ(starts[0].name, "starts/0002");
  EXPECT_EQ(starts[1].kind, ProgramKind::python);
}

// A launcher's record that was left by a start long before is not that of this start.
TEST(RunStarts, LeaveOutTheRecordOfAnotherLaunch) {
  const TemporaryFolder run;
  write_job(run, 1'700'000'000'000'000'000, 1'700'000'100'000'000'000);
  const auto before = real_time_ns();
  record(run, 0, 10);
  const auto starts = read_run_starts(run.path());
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_GE(starts[0].begin_ns, before);
  EXPECT_LE(starts[0].end_ns, real_time_ns());
  EXPECT_EQ(starts[0].allocation, "");
}

TEST(RunStarts, OfARunningTrainingEndNow) {
  const TemporaryFolder run;
  record(run, 0, 10);
  const auto now = real_time_ns() + 1'000'000'000;
  EXPECT_EQ(read_run_starts(run.path(), now).at(0).worked_ns, now);
}

}  // namespace
}  // namespace farandole

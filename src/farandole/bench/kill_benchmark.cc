// Kills processes that record, and reads what is left.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <new>
#include <random>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/bench/timeline_benchmark.h"
#include "farandole/timeline/chrome_trace/trace_reader.h"
#include "farandole/timeline/merge/run_recorders.h"
#include "farandole/timeline/merge/trace_merge.h"
#include "farandole/timeline/recorder/recorder_file.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

// The end time of the killed process' last event, in memory that both processes share.
class LastEvent {
 public:
  LastEvent() {
    void* const memory =
        ::mmap(nullptr, sizeof *end_ns_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Error("cannot allocate memory to share with a process");
    end_ns_ = new (memory) std::atomic<std::int64_t>(0);
  }
  ~LastEvent() { ::munmap(end_ns_, sizeof *end_ns_); }
  LastEvent(const LastEvent&) = delete;
  LastEvent& operator=(const LastEvent&) = delete;

  std::atomic<std::int64_t>& end_ns() { return *end_ns_; }

 private:
  std::atomic<std::int64_t>* end_ns_ = nullptr;
};

[[noreturn]] void record_until_killed(const TimelineOptions& options, LastEvent& last) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    Timeline timeline(options);
    const NameId name = timeline.intern("work");
    for (std::int64_t start_ns = now_ns();;) {
      const std::int64_t end_ns = now_ns();
      timeline.span(Category::other, name, start_ns, end_ns);
      last.end_ns().store(end_ns, std::memory_order_release);
      start_ns = end_ns;
    }
  } catch (...) {
    ::_exit(1);
  }
}

void kill_after(std::chrono::microseconds moment, const TimelineOptions& options, LastEvent& last) {
  last.end_ns() = 0;
  const pid_t child = ::fork();
  if (child < 0) throw Error("cannot start a process");
  if (child == 0) record_until_killed(options, last);
  int status = 0;
  while (last.end_ns() == 0 && ::waitpid(child, &status, WNOHANG) == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  if (last.end_ns() == 0) throw Error("a recording process ended before it was killed");
  std::this_thread::sleep_for(moment);
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
}

bool is_sound(const std::filesystem::path& file, const std::filesystem::path& trace, std::uint64_t records) {
  struct Spans : TraceVisitor {
    void span(const TraceSpan&) override { ++count; }
    std::uint64_t count = 0;
  } spans;
  RunRecorders run = open_run({file}, {});
  if (!run.sound()) return false;
  const auto merged = merge_timelines(std::move(run.ranks), trace);
  const auto summary = read_trace(trace, spans);
  return merged.damaged == 0 && summary.damaged == 0 && summary.warnings.empty() && spans.count == records;
}

}  // namespace

KillLoss measure_kills(const std::filesystem::path& folder, int kills) {
  LastEvent last;
  std::mt19937 random(1);
  TimelineOptions options;
  options.file = folder / "killed.ftl";
  KillLoss loss;
  for (; loss.kills < kills; ++loss.kills) {
    options.recorder_bytes = loss.kills % 2 == 0 ? std::size_t{256} << 10 : std::size_t{4} << 20;
    kill_after(std::chrono::microseconds(random() % 5'000), options, last);
    const RecorderFile file(options.file);
    std::uint64_t records = 0;
    std::int64_t there_ns = file.start_monotonic_ns();
    for (std::size_t slot = 0; slot < file.threads().size(); ++slot)
      for (const Record& record : file.records(slot)) {
        ++records;
        there_ns = std::max(there_ns, record.end_ns);
      }
    loss.most_lost_us = std::max(loss.most_lost_us, static_cast<double>(last.end_ns() - there_ns) * 1e-3);
    loss.sound_traces += is_sound(options.file, folder / "killed.json.gz", records) ? 1 : 0;
  }
  std::filesystem::remove(options.file);
  std::filesystem::remove(folder / "killed.json.gz");
  return loss;
}

}  // namespace farandole

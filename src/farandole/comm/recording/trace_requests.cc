#include "farandole/comm/recording/trace_requests.h"

#include <algorithm>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/file_time.h"
#include "farandole/base/quiet_thread.h"
#include "farandole/base/run_folder.h"
#include "farandole/base/staging_file.h"
#include "farandole/comm/recording/merge_lease.h"
#include "farandole/timeline/merge/run_recorders.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto look_for_messages = 250ms;
// Until all ranks' signals of one request have come: it may have been sent to each of them.
constexpr auto signals_take = 500ms;
constexpr auto copies_take = 10s;
// Then rank 0 has begun to merge, or will not.
constexpr auto rank_0_takes = copies_take + 3s;
constexpr auto stand_in_waits = 3s;
constexpr auto look_at_claim = 500ms;
// In which a claim's file stays as it is: then who merges has been stopped, or its host is gone. Looks, not
// time, for a job that was suspended as a whole goes on as a whole.
constexpr int looks_without_beat = 5 * (MergeLease::usual_beat / look_at_claim);

// The first, the last, and others at even distances.
RankSet sample_of(int ranks, std::size_t limit) {
  const auto size = static_cast<std::size_t>(ranks);
  if (limit == 0 || size <= limit) return RankSet::parse(fmt::format("0-{}", ranks - 1));
  std::string text = "0";
  for (std::size_t i = 1; i < limit; ++i) text += fmt::format(",{}", i * (size - 1) / (limit - 1));
  return RankSet::parse(text);
}

}  // namespace

TraceRequests::TraceRequests(const RankLayout& layout, SignalEvent& asked, const Timeline& timeline,
                             TraceRequestOptions options)
    : layout_(layout),
      one_host_(std::all_of(layout.nodes.begin(), layout.nodes.end(), [](int node) { return node == 0; })),
      asked_(asked),
      timeline_(timeline),
      options_(std::move(options)) {
  // Of a job that was killed while it merged. The channel keeps the other ranks until that is done.
  if (layout_.rank == 0) ::unlink(claim().c_str());
  if (layout_.size > 1) channel_ = std::make_unique<AlertChannel>(MPI_COMM_WORLD);
  thread_ = start_quiet_thread([this] { run(); });
}

TraceRequests::~TraceRequests() {
  stop_.stop();
  thread_.join();
}

void TraceRequests::run() {
  ::pthread_setname_np(::pthread_self(), "trace requests");
  // Training goes first, also before the threads that compress for this one.
  constexpr int lowest = 19;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), lowest);
  try {
    answer_requests();
  } catch (const std::exception& error) {
    spdlog::warn("this rank answers SIGUSR2 no more: {}", error.what());
  }
}

void TraceRequests::answer_requests() {
  for (;;) {
    pollfd waiting[] = {{stop_.descriptor(), POLLIN, 0}, {asked_.descriptor(), POLLIN, 0}};
    const auto wait_ms = std::chrono::milliseconds(look_for_messages).count();
    ::poll(waiting, std::size(waiting), channel_ != nullptr ? static_cast<int>(wait_ms) : -1);
    if (waiting[0].revents != 0) return;
    if (hear()) serve();
  }
}

// Whether somebody asks; passes the word on.
bool TraceRequests::hear() {
  bool heard = asked_.take();
  if (channel_ == nullptr) return heard;
  if (heard && layout_.rank != 0) tell(0);
  while (channel_->receive()) heard = true;
  return heard;
}

void TraceRequests::tell(int rank) {
  Alert alert;
  alert.kind = Alert::Kind::trace;
  channel_->send(rank, alert);
}

void TraceRequests::serve() {
  if (layout_.rank != 0) return stand_in();
  for (int rank = 1; rank < layout_.size; ++rank) tell(rank);
  const auto since_ns = show_records();
  if (layout_.size > 1 && !pause(signals_take)) return;
  wait_for_others(since_ns);
  hear();  // what has come by now is served by what is merged from now on
  merge();
}

// On all ranks but rank 0, whose turn it is first.
void TraceRequests::stand_in() {
  shown_ns_ = show_records();
  const bool waits_for_copies =
      !one_host_ || timeline_.file() != recorder_file(options_.run_dir, layout_.rank);
  // Who asks meanwhile is to be served, too: by rank 0, if it has its time again.
  for (int turn = 0; turn < 2; ++turn) {
    const auto since_ns = shown_ns_;
    if (!pause(waits_for_copies ? Clock::duration(rank_0_takes) : Clock::duration(stand_in_waits))) return;
    if (shown_ns_ == since_ns) break;
  }
  if (await_merge() && changed_ns(trace()) < shown_ns_) merge();
}

// Until no rank is merging, or the one that is makes no progress any more. False: this object is to end.
bool TraceRequests::await_merge() {
  std::optional<MergeLease::Sight> last;
  for (int same = 0; same < looks_without_beat;) {
    const auto now = MergeLease::look(claim());
    if (!now) return true;
    same = now == last ? same + 1 : 0;
    last = now;
    if (!pause(look_at_claim)) return false;
  }
  MergeLease::remove(claim(), *last);
  return true;
}

// False: this object is to end. Who asks meanwhile is passed on to rank 0.
bool TraceRequests::pause(Clock::duration time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd waiting[] = {{stop_.descriptor(), POLLIN, 0}, {asked_.descriptor(), POLLIN, 0}};
    ::poll(waiting, std::size(waiting), static_cast<int>(std::clamp<std::int64_t>(left, 0, 250)));
    if (waiting[0].revents != 0) return false;
    if (hear() && layout_.rank != 0) shown_ns_ = show_records();
  }
  return true;
}

// Returns when that was, by the clock of the run directory's file system; -1: nothing is there.
std::int64_t TraceRequests::show_records() const {
  const auto destination = recorder_file(options_.run_dir, layout_.rank);
  if (!timeline_.enabled()) return -1;
  try {
    if (timeline_.file() != destination) {
      copy_out(destination);
    } else {
      const OwnedDescriptor file(::open(destination.c_str(), O_RDWR | O_CLOEXEC));
      if (!one_host_) ::fsync(file.get());
      ::futimens(file.get(), nullptr);
    }
  } catch (const Error& error) {
    spdlog::warn("the records so far cannot be copied: {}", error.what());
  }
  return changed_ns(destination);
}

// Until the others' recorders have been shown, too.
void TraceRequests::wait_for_others(std::int64_t since_ns) {
  if (one_host_ && timeline_.file() == recorder_file(options_.run_dir, 0))
    return;                                          // they can be read as they are
  constexpr std::int64_t spread_ns = 2'000'000'000;  // of the ranks' being asked
  const auto end = Clock::now() + copies_take;
  for (int rank = 1; rank < layout_.size && Clock::now() < end;) {
    if (changed_ns(recorder_file(options_.run_dir, rank)) >= since_ns - spread_ns)
      ++rank;
    else if (!pause(50ms))
      return;
  }
}

fs::path TraceRequests::trace() const {
  return options_.run_dir / "timeline.json.gz";
}

fs::path TraceRequests::claim() const {
  return options_.run_dir / "recorder" / "merging";
}

void TraceRequests::merge() {
  try {
    const MergeLease merging(claim());
    if (!merging.won()) return;
    write_trace();
  } catch (const std::exception& error) {
    spdlog::error("the timeline so far could not be merged: {}", error.what());
  }
}

void TraceRequests::write_trace() const {
  RunMergeOptions which;
  which.ranks = sample_of(layout_.size, options_.merge_limit);
  which.merge_limit = 0;
  std::vector<fs::path> files;
  for (int rank = 0; rank < layout_.size; ++rank)
    if (which.ranks.contains(rank)) files.push_back(readable_at(recorder_file(options_.run_dir, rank)));
  RunRecorders run = open_run(files, which);
  for (const RecorderReport& file : run.files)
    if (!file.sound() && !file.problems.empty()) spdlog::warn("{}", file.problems.front());
  const auto ranks = run.ranks.size();
  const auto output = trace();
  MergeOptions merging;
  merging.threads = 1;
  const auto result = merge_timelines(std::move(run.ranks), output, merging);
  spdlog::info("as SIGUSR2 asked for: {} has the {} events so far, of {} of {} ranks", output.string(),
               result.events, ranks, layout_.size);
}

}  // namespace farandole

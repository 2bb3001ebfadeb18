#include "farandole/comm/recording/trace_requests.h"

#include <algorithm>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/log.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/merge/run_recorders.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto look_for_messages = 250ms;
// Time until the signals of one request have arrived on all ranks, because it may have been sent
// to each of them.
constexpr auto signals_take = 500ms;
constexpr auto copies_take = 10s;
// After this time, rank 0 has begun to merge or will not do it.
constexpr auto rank_0_takes = copies_take + 3s;
constexpr auto stand_in_waits = 3s;
constexpr auto look_at_claim = 500ms;
// If the lease file does not change for this number of checks, the merging rank was stopped or its host has
// failed. Checks are counted instead of time, because a job that was suspended as a whole resumes as a whole.
constexpr int looks_without_beat = 5 * (MergeLease::usual_beat / look_at_claim);

// The first, the last, and others at equal distances.
RankSet sample_of(int ranks, std::size_t limit) {
  const auto size = static_cast<std::size_t>(ranks);
  if (limit == 0 || size <= limit) return RankSet::parse(fmt::format("0-{}", ranks - 1));
  std::string text = "0";
  for (std::size_t i = 1; i < limit; ++i) text += fmt::format(",{}", i * (size - 1) / (limit - 1));
  return RankSet::parse(text);
}

}  // namespace

MergeLease::MergeLease(std::filesystem::path file, std::chrono::milliseconds beat)
    : file_(std::move(file)), fd_(::open(file_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666)) {
  if (!won()) return;
  try {
    heartbeat_.emplace(fd_.get(), beat);
  } catch (...) {
    ::unlink(file_.c_str());
    throw;
  }
}

MergeLease::~MergeLease() {
  if (!won()) return;
  heartbeat_.reset();
  const auto own = sight_of(fd_.get()), there = sight_of(file_);
  if (own && there && own->is_same_file(*there)) ::unlink(file_.c_str());
}

void MergeLease::remove(const std::filesystem::path& file, const FileSight& stale) {
  if (sight_of(file) == stale) ::unlink(file.c_str());
}

TraceRequests::TraceRequests(ControlPlane& control, const RankLayout& layout, SignalEvent& asked,
                             const Timeline& timeline, TraceRequestOptions options)
    : layout_(layout),
      one_host_(std::all_of(layout.nodes.begin(), layout.nodes.end(), [](int node) { return node == 0; })),
      asked_(asked),
      timeline_(timeline),
      options_(std::move(options)) {
  // Removes the lease of an earlier job that was killed while it merged.
  if (layout_.rank == 0) ::unlink(claim().c_str());
  if (layout_.size > 1) channel_ = std::make_unique<AlertChannel>(control, all_ranks(layout_.size));
  thread_ = start_quiet_thread([this] { run(); });
}

TraceRequests::~TraceRequests() {
  stop_.stop();
  thread_.join();
}

void TraceRequests::run() {
  ::pthread_setname_np(::pthread_self(), "trace requests");
  give_way();  // so do the compressing threads that this thread starts
  try {
    answer_requests();
  } catch (const std::exception& error) {
    log_warning("this rank no longer answers SIGUSR2: {}", error.what());
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

// Returns true if a trace was requested, and forwards the request.
bool TraceRequests::hear() {
  bool heard = asked_.take();
  if (channel_ != nullptr) {
    if (heard && layout_.rank != 0) tell(0);
    while (channel_->receive()) heard = true;
  }
  if (heard && options_.on_request) options_.on_request();
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
  hear();  // requests that arrived until now are served by this merge
  merge();
}

// Runs on all ranks except rank 0, which may merge first.
void TraceRequests::stand_in() {
  shown_ns_ = show_records();
  const bool waits_for_copies =
      !one_host_ || timeline_.file() != recorder_file(options_.run_dir, layout_.rank);
  // A request that arrives during the wait is served too, by rank 0 if it again has enough time.
  for (int round = 0; round < 2; ++round) {
    const auto since_ns = shown_ns_;
    if (!pause(waits_for_copies ? Clock::duration(rank_0_takes) : Clock::duration(stand_in_waits))) return;
    if (shown_ns_ == since_ns) break;
  }
  if (await_merge() && changed_ns(trace()) < shown_ns_) merge();
}

// Waits until no rank is merging, or until the merging rank makes no progress. Returns false if
// this object must end.
bool TraceRequests::await_merge() {
  std::optional<FileSight> last;
  for (int same = 0; same < looks_without_beat;) {
    const auto now = sight_of(claim());
    if (!now) return true;
    same = now == last ? same + 1 : 0;
    last = now;
    if (!pause(look_at_claim)) return false;
  }
  MergeLease::remove(claim(), *last);
  return true;
}

// Returns false if this object must end. Requests that arrive during the pause are forwarded to rank 0.
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

// Makes the recorder readable for other ranks. Returns the time of this by the clock of the run directory's
// file system; -1 if there is nothing to show.
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
    log_warning("the records written so far could not be copied: {}", error.what());
  }
  return changed_ns(destination);
}

// Waits until the other ranks' recorders are readable too.
void TraceRequests::wait_for_others(std::int64_t since_ns) {
  if (one_host_ && timeline_.file() == recorder_file(options_.run_dir, 0))
    return;                                          // they can be read where they are
  constexpr std::int64_t spread_ns = 2'000'000'000;  // time within which the ranks receive the request
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
    log_error("the timeline requested by SIGUSR2 could not be merged: {}", error.what());
  }
}

void TraceRequests::write_trace() const {
  RunMergeOptions which;
  which.ranks = sample_of(layout_.size, options_.merge_limit);
  which.merge_limit = 0;
  std::vector<fs::path> files;
  for (int rank = 0; rank < layout_.size; ++rank) {
    auto file = readable_at(recorder_file(options_.run_dir, rank));
    std::error_code ignored;
    if (which.ranks.contains(rank) || fs::exists(file, ignored)) files.push_back(std::move(file));
  }
  RunRecorders run = open_run(files, which);
  for (const RecorderReport& file : run.files)
    if (!file.sound() && !file.problems.empty()) log_warning("{}", file.problems.front());
  const auto ranks = run.ranks.size();
  const auto output = trace();
  MergeOptions merging;
  merging.threads = 1;
  const auto result = merge_timelines(std::move(run.ranks), output, merging);
  log_info("trace requested by SIGUSR2: {} contains the {} events so far of {} of {} ranks", output.string(),
           result.events, ranks, layout_.size);
}

}  // namespace farandole

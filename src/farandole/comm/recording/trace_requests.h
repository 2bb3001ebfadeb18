// Writes the trace of what a running job has recorded so far to RUN/timeline.json.gz when SIGUSR2 is sent to
// any or all of its ranks. The end of the job replaces this trace.
// Thread safety: only the main thread may create and destroy this.
//
// Users request a trace mostly when the job hangs, so nothing here needs the training thread or waits for an
// answer of another rank. Each rank has a thread that waits for the signal. Messages only forward the
// request, from the signalled rank to rank 0 and from there to all ranks; sending does not wait. At the end
// of a job, records are sent as messages (recording.h). Here they are read from files, which can be read at
// any moment, whatever their rank does. Each rank makes its recorder readable for others: a recorder on the
// node is copied to the run directory, and a recorder in the run directory is flushed so that other hosts can
// read it. Rank 0 waits some seconds for this, merges the available recorders and logs it. If rank 0 does not
// do this because it is stopped or its host has failed, another rank does it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "farandole/base/files/file_bytes.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/base/process/signal_event.h"
#include "farandole/base/run/run_lease.h"
#include "farandole/comm/rank_layout.h"
#include "farandole/comm/watch/watch_post.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

// Decides which rank of a job, on any host, merges a requested trace: the rank that has created a file. A
// separate thread touches the file until the merge is done, because the merge may wait long for its disk.
// Thread safety: any thread may call this at any time.
class MergeLease {
 public:
  static constexpr std::chrono::milliseconds usual_beat{1000};

  // Creates the file unless it exists.
  // Throws: std::system_error if no thread can be started.
  explicit MergeLease(std::filesystem::path file, std::chrono::milliseconds beat = usual_beat);
  ~MergeLease();  // removes the file unless another rank has replaced it
  MergeLease(const MergeLease&) = delete;
  MergeLease& operator=(const MergeLease&) = delete;
  bool won() const { return fd_.get() >= 0; }

  // Removes a lease whose state is still `stale`. If its owner resumes, two ranks merge, each
  // into its own file.
  static void remove(const std::filesystem::path& file, const FileSight& stale);

 private:
  const std::filesystem::path file_;
  const OwnedDescriptor fd_;
  std::optional<Heartbeat> heartbeat_;
};

struct TraceRequestOptions {
  std::filesystem::path run_dir;
  // Ranks in the trace; 0 means no limit. Above this limit, only the first and last ranks and a sample of the
  // others are merged. To find the slowest rank, all recorders would have to be read.
  std::size_t merge_limit = 64;
  std::function<void()> on_request{};  // on every rank, by the thread that serves requests
};

class TraceRequests {
 public:
  // `control`, `asked` and `timeline` must outlive this object.
  // Throws: Error if the process has no file descriptor left.
  // Collective: every rank of the job must call this in the same order.
  TraceRequests(ControlPlane& control, const RankLayout& layout, SignalEvent& asked, const Timeline& timeline,
                TraceRequestOptions options);
  ~TraceRequests();  // waits for a merge in progress
  TraceRequests(const TraceRequests&) = delete;
  TraceRequests& operator=(const TraceRequests&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  void answer_requests();
  bool hear();
  void tell(int rank);
  void serve();
  void stand_in();
  bool pause(Clock::duration time);
  void wait_for_others(std::int64_t since_ns);
  std::int64_t show_records() const;
  bool await_merge();
  void merge();
  void write_trace() const;
  std::filesystem::path trace() const;
  std::filesystem::path claim() const;

  const RankLayout layout_;
  const bool one_host_;
  SignalEvent& asked_;
  const Timeline& timeline_;
  const TraceRequestOptions options_;
  std::unique_ptr<AlertChannel> channel_;  // null in a job of one rank
  std::int64_t shown_ns_ = -1;             // show_records() of the last request; not used on rank 0
  StopEvent stop_;
  std::thread thread_;
};

}  // namespace farandole

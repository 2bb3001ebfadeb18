// The trace of what a running job has recorded so far, for whoever sends SIGUSR2 to any of its ranks, or to
// all: RUN/timeline.json.gz, which the job's end replaces. Made and destroyed by the main thread.
//
// It is the job that hangs whose trace is asked for, so nothing here needs the thread that trains, nor waits
// for another rank's answer. Each rank has a thread that waits for the signal. Messages only spread the word:
// from the rank that was signalled to rank 0, from there to all, sent without waiting. Records do not travel
// by messages, as they do at a job's end (recording.h), but by files, for those are there whatever their rank
// does: a recorder can be read at any moment. Each rank sees to it that others can read its own: one that
// lies on the node is copied into the run directory, one that lies there is written out where other hosts
// read it. Rank 0 waits for that, for some seconds at most, merges what there is, and says so in the log;
// where it does not, for it is stopped or its host gone, another rank does.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <thread>

#include "farandole/base/stop_event.h"
#include "farandole/comm/rank_layout.h"
#include "farandole/comm/watch/alert_channel.h"
#include "farandole/comm/watch/signal_event.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

struct TraceRequestOptions {
  std::filesystem::path run_dir;
  // Ranks in the trace; 0: any number. Of more, the first, the last and a sample: to find the slowest, all
  // recorders would have to be read.
  std::size_t merge_limit = 64;
};

class TraceRequests {
 public:
  // Collective over the job. `asked` and `timeline` outlive this object. The layout is that of
  // MPI_COMM_WORLD. Throws Error where the process has no descriptor left.
  TraceRequests(const RankLayout& layout, SignalEvent& asked, const Timeline& timeline,
                TraceRequestOptions options);
  ~TraceRequests();  // waits for the merge that is under way, if any
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
  std::int64_t shown_ns_ = -1;             // show_records() of the last request; not on rank 0
  StopEvent stop_;
  std::thread thread_;
};

}  // namespace farandole

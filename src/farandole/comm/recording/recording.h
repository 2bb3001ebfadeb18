// The recording of a job. It measures clocks, records counters and the program's own MPI calls, and merges
// the timeline at the end.
// Thread safety: only the main thread may create and destroy this. Only this thread may call its functions.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farandole/comm/control/message_channel.h"
#include "farandole/comm/recording/clock_rounds.h"
#include "farandole/timeline/clock/clock_model.h"
#include "farandole/timeline/counters/counters.h"
#include "farandole/timeline/merge/record_source.h"
#include "farandole/timeline/merge/trace_merge.h"
#include "farandole/timeline/mpi_trace.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class OfferedRecords;

struct TraceOptions {
  std::filesystem::path run_dir;
  std::size_t merge_limit = 64;  // ranks in the trace; 0 means no limit
  // The GPU whose counters are recorded, as for GpuCounters::open(); "" means none.
  std::string gpu = {};
  bool of_main_thread =
      false;  // records the core of the main thread, not of the one that creates the recording
};

class Recording {
 public:
  // `timeline` must outlive this object. The channel has all ranks of the job, and no other object may use
  // it. Without one, clocks are not measured.
  Recording(std::unique_ptr<MessageChannel> channel, Timeline& timeline, TraceOptions options);
  ~Recording();

  // From now on, the clock is compared with rank 0's, if this rank measures it. For a recording that was made
  // without a channel. `control` must outlive this object.
  void use(ControlPlane& control);
  // Takes the last clock samples. Call it only once, while no other thread is in an MPI call of the program.
  void close();
  // Calls close() and sends the records of up to merge_limit ranks to rank 0, which writes
  // RUN/timeline.json.gz or warns if it cannot. Call it only once.
  // Throws: Error if another rank is lost.
  // Collective: every rank of the job must call this in the same order.
  void publish();

 private:
  void take(std::span<const RoundTrip> round_trips);
  std::unique_ptr<RecordSource> own_records() const;
  void merge();
  std::vector<std::shared_ptr<OfferedRecords>> offers();
  std::vector<std::unique_ptr<RecordSource>> all_ranks(
      std::vector<std::shared_ptr<OfferedRecords>> offers) const;
  std::vector<RankTimeline> choose(std::vector<RankTimeline> ranks) const;
  static void tell(const MergeResult& result);

  Timeline& timeline_;
  const TraceOptions options_;
  std::unique_ptr<MessageChannel> channel_;
  std::unique_ptr<CounterSampler> counters_;
  std::vector<RoundTrip> round_trips_;         // written by the thread of clock_rounds_ while it exists
  ControlPlane* control_ = nullptr;            // of clock_rounds_
  std::unique_ptr<ClockRounds> clock_rounds_;  // set if this rank measures
  std::optional<MpiTrace> mpi_trace_;
};

}  // namespace farandole

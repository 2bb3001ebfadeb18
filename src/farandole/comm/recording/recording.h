// A job's recording: clock samples at its start, each minute and at its end, counters and the program's own
// MPI calls meanwhile, the merged timeline at its end.
// Made and published by all ranks together, on the main thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farandole/comm/mpi/message_channel.h"
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
  std::size_t merge_limit = 64;      // ranks in the trace; 0: any number
  bool threads_may_call_mpi = true;  // false: clocks are not measured while the job runs
  std::string gpu = {};              // whose counters are recorded, as GpuCounters::open() takes it; "": none
};

class Recording {
 public:
  // `timeline` outlives this object; the channel is for it alone.
  Recording(std::unique_ptr<MessageChannel> channel, Timeline& timeline, TraceOptions options);
  ~Recording();

  // The last samples. Once; collective, as publish(). No other thread is in an MPI call of the program.
  void close();
  // close(), and the ranks' records, of at most merge_limit ranks, to rank 0, which writes
  // RUN/timeline.json.gz, or warns where it cannot. Once. Throws where another rank is lost.
  void publish();

 private:
  void watch_clock();
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
  std::vector<RoundTrip> round_trips_;         // of the rounds' thread, while there is one
  std::unique_ptr<ClockRounds> clock_rounds_;  // where this rank measures or answers
  std::optional<MpiTrace> mpi_trace_;
};

}  // namespace farandole

// A job's recording: clock samples at its start and end, counters meanwhile, the merged timeline at its end.
// Made and published by all ranks together, on the main thread.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "farandole/comm/message_channel.h"
#include "farandole/timeline/clock_model.h"
#include "farandole/timeline/counters.h"
#include "farandole/timeline/record_source.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

class Recording {
 public:
  // `timeline` outlives this object; the channel is for it alone.
  Recording(std::unique_ptr<MessageChannel> channel, Timeline& timeline, std::filesystem::path run_dir);

  ~Recording();

  // Every rank's records to rank 0, which writes RUN/timeline.json.gz. Once.
  void publish();

 private:
  std::unique_ptr<RecordSource> own_records() const;
  void send();
  void merge();

  Timeline& timeline_;
  std::filesystem::path run_dir_;
  std::unique_ptr<MessageChannel> channel_;
  std::unique_ptr<CounterSampler> counters_;
  std::vector<RoundTrip> round_trips_;
};

}  // namespace farandole

#include "farandole/comm/recording.h"

#include <spdlog/spdlog.h>
#include <utility>

#include "farandole/comm/clock_exchange.h"
#include "farandole/timeline/record_source.h"
#include "farandole/timeline/trace_merge.h"

namespace farandole {

Recording::Recording(std::unique_ptr<MessageChannel> channel, Timeline& timeline,
                     std::filesystem::path run_dir)
    : timeline_(timeline),
      run_dir_(std::move(run_dir)),
      channel_(std::move(channel)),
      counters_(std::make_unique<CounterSampler>(timeline)),
      round_trips_(exchange_clocks(*channel_)) {
  timeline_.set_clock(round_trips_);
}

Recording::~Recording() = default;

void Recording::publish() {
  counters_.reset();
  const auto last = exchange_clocks(*channel_);
  round_trips_.insert(round_trips_.end(), last.begin(), last.end());
  timeline_.set_clock(round_trips_);
  if (channel_->rank() == 0)
    merge();
  else
    send();
}

// A rank that could not record, for want of disk, takes part without records.
std::unique_ptr<RecordSource> Recording::own_records() const {
  const auto& options = timeline_.options();
  if (timeline_.enabled()) return open_source(options.file);
  RankInfo nothing;
  nothing.rank = options.rank;
  nothing.world_size = options.world_size;
  nothing.host = options.host;
  nothing.clock_samples = round_trips_;
  return received_source(std::move(nothing), [] { return std::vector<std::byte>(); });
}

// What merge() asks for, in its order: the rank's facts, then on a further word its records block by block.
void Recording::send() {
  const auto source = own_records();
  channel_->send(0, pack(source->info()));
  channel_->receive(0);
  for (auto block = source->next(); !block.empty(); block = source->next())
    channel_->send(0, std::as_bytes(block));
  channel_->send(0, {});
}

void Recording::merge() {
  std::vector<std::unique_ptr<RecordSource>> ranks;
  ranks.push_back(own_records());
  for (int rank = 1; rank < channel_->size(); ++rank) {
    auto receive = [this, rank, asked = false]() mutable {
      if (!std::exchange(asked, true)) channel_->send(rank, {});
      return channel_->receive(rank);
    };
    ranks.push_back(received_source(unpack(channel_->receive(rank)), std::move(receive)));
  }
  const auto result = merge_timelines(with_clocks(std::move(ranks)), run_dir_ / "timeline.json.gz");
  if (result.overwritten > 0)
    spdlog::warn(
        "the timeline lacks its oldest {} events: the recorders were full; raise --recorder-mb or record "
        "fewer steps",
        result.overwritten);
  if (result.dropped + result.damaged > 0)
    spdlog::warn("the timeline lacks {} events of threads without a recorder and {} damaged ones",
                 result.dropped, result.damaged);
}

}  // namespace farandole

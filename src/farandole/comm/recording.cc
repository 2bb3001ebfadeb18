#include "farandole/comm/recording.h"

#include <chrono>
#include <spdlog/spdlog.h>
#include <system_error>
#include <utility>

#include "farandole/comm/clock_exchange.h"
#include "farandole/timeline/rank_choice.h"
#include "farandole/timeline/record_source.h"
#include "farandole/timeline/trace_merge.h"

namespace farandole {
namespace {

// Rank 0's answer to a rank that its merge does without.
const std::vector<std::byte> not_needed{std::byte{1}};

// Clocks that NTP and heat bend by 1 ppm in the time stay within some 10 µs of a straight line.
constexpr std::chrono::minutes between_rounds(1);

// So much longer than at the start that it would say less than its neighbours do: training needs the network.
bool is_long(const RoundTrip& trip, const RoundTrip& first) {
  constexpr std::int64_t queue_ns = 20'000;
  return trip.receive_ns - trip.send_ns > 4 * (first.receive_ns - first.send_ns) + queue_ns;
}

// A rank whose thread cannot be started, for want of processes, still takes part in what all ranks do.
std::unique_ptr<CounterSampler> counters_of(Timeline& timeline) try {
  return std::make_unique<CounterSampler>(timeline);
} catch (const std::system_error& error) {
  spdlog::warn("no counters are recorded: {}", error.what());
  return nullptr;
}

}  // namespace

Recording::Recording(std::unique_ptr<MessageChannel> channel, Timeline& timeline, TraceOptions options)
    : timeline_(timeline),
      options_(std::move(options)),
      channel_(std::move(channel)),
      counters_(counters_of(timeline)) {
  watch_clock();
  mpi_trace_.emplace(timeline_);
}

Recording::~Recording() = default;

// All ranks take part in making the channel, though few may use it.
void Recording::watch_clock() {
  auto first = exchange_clocks(*channel_);
  round_trips_ = best_of_bursts(first.round_trips);
  timeline_.set_clock(round_trips_);
  auto channel = channel_->another();
  if (!first.measured || !options_.threads_may_call_mpi) return;
  clock_rounds_ =
      std::make_unique<ClockRounds>(std::move(channel), between_rounds, [this](const RoundTrip& trip) {
        if (is_long(trip, round_trips_.front())) return;
        round_trips_.push_back(trip);
        timeline_.set_clock(round_trips_);
      });
}

void Recording::close() {
  mpi_trace_.reset();
  counters_.reset();
  clock_rounds_.reset();
  const auto last = best_of_bursts(exchange_clocks(*channel_).round_trips);
  round_trips_.insert(round_trips_.end(), last.begin(), last.end());
  timeline_.set_clock(round_trips_);
}

void Recording::publish() {
  close();
  if (channel_->rank() == 0)
    merge();
  else
    send();
}

// A rank that could not record, for want of disk, takes part without records.
std::unique_ptr<RecordSource> Recording::own_records() const {
  const auto& options = timeline_.options();
  if (timeline_.enabled()) return open_source(timeline_.file());
  RankInfo nothing;
  nothing.rank = options.rank;
  nothing.world_size = options.world_size;
  nothing.host = options.host;
  nothing.clock_samples = round_trips_;
  return received_source(std::move(nothing), [] { return std::vector<std::byte>(); });
}

// What merge() asks for, in its order: the rank's facts, then, if it says so, its records block by block.
void Recording::send() {
  const auto source = own_records();
  channel_->send(0, pack(source->info()));
  if (channel_->receive(0) == not_needed) return;
  for (auto block = source->next(); !block.empty(); block = source->next())
    channel_->send(0, std::as_bytes(block));
  channel_->send(0, {});
}

std::vector<std::unique_ptr<RecordSource>> Recording::all_ranks() {
  std::vector<std::unique_ptr<RecordSource>> ranks;
  ranks.push_back(own_records());
  for (int rank = 1; rank < channel_->size(); ++rank) {
    auto receive = [this, rank, asked = false]() mutable {
      if (!std::exchange(asked, true)) channel_->send(rank, {});
      return channel_->receive(rank);
    };
    ranks.push_back(received_source(unpack(channel_->receive(rank)), std::move(receive)));
  }
  return ranks;
}

std::vector<RankTimeline> Recording::choose(std::vector<RankTimeline> ranks) {
  const auto choice = choose_ranks(ranks, options_.merge_limit);
  if (const auto text = left_out_text(ranks, choice); !text.empty()) spdlog::warn(text);
  std::vector<RankTimeline> chosen;
  for (const auto i : choice.chosen) chosen.push_back(std::move(ranks[i]));
  for (const auto& left_out : ranks)
    if (left_out.records != nullptr && left_out.records->info().rank != 0)
      channel_->send(left_out.records->info().rank, not_needed);
  return chosen;
}

void Recording::merge() {
  const auto result =
      merge_timelines(choose(with_clocks(all_ranks())), options_.run_dir / "timeline.json.gz");
  if (result.overwritten > 0)
    spdlog::warn(
        "the timeline lacks its oldest {} events: the recorders were full; raise --recorder-mb or record "
        "fewer steps",
        result.overwritten);
  if (result.left_early > 0)
    spdlog::warn(
        "{} times a rank left a collective before another had come, by their clocks, which do not explain "
        "it: "
        "take times across ranks with care",
        result.left_early);
  if (result.dropped + result.damaged > 0)
    spdlog::warn("the timeline lacks {} events of threads without a recorder and {} damaged ones",
                 result.dropped, result.damaged);
}

}  // namespace farandole

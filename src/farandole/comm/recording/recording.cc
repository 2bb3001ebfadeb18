#include "farandole/comm/recording/recording.h"

#include <chrono>
#include <spdlog/spdlog.h>
#include <system_error>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/comm/recording/clock_exchange.h"
#include "farandole/comm/recording/offered_records.h"
#include "farandole/timeline/merge/rank_choice.h"
#include "farandole/timeline/merge/record_source.h"
#include "farandole/timeline/merge/trace_merge.h"

namespace farandole {
namespace {

// If NTP and heat change a clock by 1 ppm within this time, it stays within about 10 µs of a straight line.
constexpr std::chrono::minutes between_rounds(1);

// True if the round trip is so much longer than the first one that it adds no information. Training may
// be using the network.
bool is_long(const RoundTrip& trip, const RoundTrip& first) {
  constexpr std::int64_t queue_ns = 20'000;
  return trip.receive_ns - trip.send_ns > 4 * (first.receive_ns - first.send_ns) + queue_ns;
}

// If a rank cannot start the thread because the process limit is reached, it still takes
// part in the collectives.
std::unique_ptr<CounterSampler> counters_of(Timeline& timeline, const std::string& gpu) try {
  return std::make_unique<CounterSampler>(timeline, CounterOptions{.gpu = gpu});
} catch (const std::system_error& error) {
  spdlog::warn("no counters are recorded: {}", error.what());
  return nullptr;
}

}  // namespace

Recording::Recording(std::unique_ptr<MessageChannel> channel, Timeline& timeline, TraceOptions options)
    : timeline_(timeline),
      options_(std::move(options)),
      channel_(std::move(channel)),
      counters_(counters_of(timeline, options_.gpu)) {
  watch_clock();
  mpi_trace_.emplace(timeline_);
}

Recording::~Recording() = default;

// All ranks take part in creating the channel, although only a few may use it.
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
    offer_records(*channel_, *own_records());
}

// A rank takes part without records if it could not record because its disk was full, or if its
// file no longer exists.
std::unique_ptr<RecordSource> Recording::own_records() const {
  const auto& options = timeline_.options();
  try {
    if (timeline_.enabled()) return open_source(timeline_.file());
  } catch (const Error& error) {
    spdlog::warn("the timeline lacks the records of this rank: {}", error.what());
  }
  RankInfo nothing;
  nothing.rank = options.rank;
  nothing.world_size = options.world_size;
  nothing.host = options.host;
  nothing.clock_samples = round_trips_;
  return received_source(std::move(nothing), [] { return std::vector<std::byte>(); });
}

std::vector<std::shared_ptr<OfferedRecords>> Recording::offers() {
  std::vector<std::shared_ptr<OfferedRecords>> offers;
  for (int rank = 1; rank < channel_->size(); ++rank)
    offers.push_back(std::make_shared<OfferedRecords>(*channel_, rank));
  return offers;
}

// A source keeps its rank waiting as long as the source exists.
std::vector<std::unique_ptr<RecordSource>> Recording::all_ranks(
    std::vector<std::shared_ptr<OfferedRecords>> offers) const {
  std::vector<std::unique_ptr<RecordSource>> ranks;
  ranks.push_back(own_records());
  for (auto& offer : offers) {
    auto info = offer->info();
    ranks.push_back(
        received_source(std::move(info), [offer = std::move(offer)] { return offer->next_block(); }));
  }
  return ranks;
}

std::vector<RankTimeline> Recording::choose(std::vector<RankTimeline> ranks) const {
  const auto choice = choose_ranks(ranks, options_.merge_limit);
  if (const auto text = left_out_text(ranks, choice); !text.empty()) spdlog::warn(text);
  std::vector<RankTimeline> chosen;
  for (const auto i : choice.chosen) chosen.push_back(std::move(ranks[i]));
  return chosen;
}

// The program's work is done and the recorders are kept, so a failure such as a full disk must
// not fail the program.
void Recording::merge() {
  auto all = offers();
  const auto trace = options_.run_dir / "timeline.json.gz";
  try {
    tell(merge_timelines(choose(with_clocks(all_ranks(std::move(all)))), trace));
  } catch (const std::exception& error) {
    const auto* own = dynamic_cast<const Error*>(&error);
    if (own != nullptr && own->exit_code() == ExitCode::peer_lost) throw;
    spdlog::warn(
        "{} could not be written: {}; the recorders are kept, so merge them with farandole timeline merge {}",
        trace.string(), error.what(), options_.run_dir.string());
  }
}

void Recording::tell(const MergeResult& result) {
  if (result.overwritten > 0)
    spdlog::warn(
        "the timeline lacks its oldest {} events because the recorders were full; raise --recorder-mb or "
        "record fewer steps",
        result.overwritten);
  if (result.left_early > 0)
    spdlog::warn(
        "{} times, a rank left a collective before another rank had entered it; this exceeds the clock "
        "error, so compare times of different ranks with care",
        result.left_early);
  if (result.dropped + result.damaged > 0)
    spdlog::warn(
        "the timeline lacks {} events because the recorders were full (raise --recorder-mb), and {} damaged "
        "events",
        result.dropped, result.damaged);
}

}  // namespace farandole

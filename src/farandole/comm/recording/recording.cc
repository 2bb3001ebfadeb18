#include "farandole/comm/recording/recording.h"

#include <chrono>
#include <cstddef>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/log.h"
#include "farandole/comm/control/message_channel.h"
#include "farandole/comm/recording/clock_rounds.h"
#include "farandole/timeline/merge/rank_choice.h"
#include "farandole/timeline/merge/record_source.h"
#include "farandole/timeline/merge/trace_merge.h"

namespace farandole {
namespace {

// Rank 0's answer to a rank whose records are not needed. An empty answer requests the records.
const std::vector<std::byte> not_needed{std::byte{1}};

std::span<const Record> next_of(RecordSource& source) try {
  return source.next();
} catch (const Error& error) {
  log_warning("the timeline lacks the remaining records of this rank: {}", error.what());
  return {};
}

// Returns when rank 0 has the records or does not need them. Records that can no longer be read are left out.
void offer_records(MessageChannel& channel, RecordSource& source) {
  channel.send(0, pack(source.info()));
  if (channel.receive(0) == not_needed) return;
  for (auto block = next_of(source); !block.empty(); block = next_of(source))
    channel.send(0, std::as_bytes(block));
  channel.send(0, {});
}

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
std::unique_ptr<CounterSampler> counters_of(Timeline& timeline, const std::string& gpu, bool of_main) try {
  return std::make_unique<CounterSampler>(timeline, CounterOptions{.gpu = gpu, .of_main_thread = of_main});
} catch (const std::system_error& error) {
  log_warning("no counters are recorded: {}", error.what());
  return nullptr;
}

}  // namespace

// Proxy for a remote rank's records. Its facts are available immediately, its records block by block if
// they are wanted. The remote rank waits in offer_records() until the destructor releases it, also after
// a failed merge.
// Thread safety: none; use from one thread at a time.
class OfferedRecords {
 public:
  // Waits for the rank's offer. The channel must outlive this object.
  OfferedRecords(MessageChannel& channel, int rank)
      : channel_(channel), rank_(rank), facts_(channel.receive(rank)) {}
  ~OfferedRecords() {
    try {
      if (state_ == Rank::waits) channel_.send(rank_, not_needed);
      while (state_ == Rank::sends) next_block();
    } catch (const std::exception& error) {
      log_warning("rank {} could not be informed that the merge of the timeline has ended: {}", rank_,
                  error.what());
    }
  }
  OfferedRecords(const OfferedRecords&) = delete;
  OfferedRecords& operator=(const OfferedRecords&) = delete;

  // Call this once. Throws: CorruptInput.
  RankInfo take_info() { return unpack(std::exchange(facts_, {})); }
  // Empty at the end.
  std::vector<std::byte> next_block() {
    if (state_ == Rank::is_done) return {};
    if (state_ == Rank::waits) channel_.send(rank_, {});
    state_ = Rank::sends;
    auto block = channel_.receive(rank_);
    if (block.empty()) state_ = Rank::is_done;
    return block;
  }

 private:
  enum class Rank { waits, sends, is_done };

  MessageChannel& channel_;
  const int rank_;
  Rank state_ = Rank::waits;
  std::vector<std::byte> facts_;
};

Recording::Recording(std::unique_ptr<MessageChannel> channel, Timeline& timeline, TraceOptions options)
    : timeline_(timeline),
      options_(std::move(options)),
      channel_(std::move(channel)),
      counters_(counters_of(timeline, options_.gpu, options_.of_main_thread)) {
  if (channel_ != nullptr) use(channel_->control());
  mpi_trace_.emplace(timeline_);
}

Recording::~Recording() = default;

void Recording::use(ControlPlane& control) {
  control_ = &control;
  if (measures_clock(control))
    clock_rounds_ = std::make_unique<ClockRounds>(control, between_rounds,
                                                  [this](auto round_trips) { take(round_trips); });
}

void Recording::take(std::span<const RoundTrip> round_trips) {
  for (const auto& trip : round_trips)
    if (round_trips_.empty() || !is_long(trip, round_trips_.front())) round_trips_.push_back(trip);
  timeline_.set_clock(round_trips_);
}

void Recording::close() {
  mpi_trace_.reset();
  counters_.reset();
  if (std::exchange(clock_rounds_, nullptr) == nullptr) return;
  try {
    take(best_of_bursts(measure_clock(*control_)));
  } catch (const Error&) {  // Rank 0 has ended before.
  }
}

void Recording::publish() {
  close();
  if (channel_ == nullptr || channel_->rank() == 0)
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
    log_warning("the timeline lacks the records of this rank: {}", error.what());
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
  for (int rank = 1; channel_ != nullptr && rank < channel_->size(); ++rank)
    offers.push_back(std::make_shared<OfferedRecords>(*channel_, rank));
  return offers;
}

// A source keeps its rank waiting as long as the source exists.
std::vector<std::unique_ptr<RecordSource>> Recording::all_ranks(
    std::vector<std::shared_ptr<OfferedRecords>> offers) const {
  std::vector<std::unique_ptr<RecordSource>> ranks;
  ranks.push_back(own_records());
  for (auto& offer : offers) {
    auto info = offer->take_info();
    ranks.push_back(
        received_source(std::move(info), [offer = std::move(offer)] { return offer->next_block(); }));
  }
  return ranks;
}

std::vector<RankTimeline> Recording::choose(std::vector<RankTimeline> ranks) const {
  const auto choice = choose_ranks(ranks, options_.merge_limit);
  if (const auto text = left_out_text(ranks, choice); !text.empty()) log_warning("{}", text);
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
    log_warning(
        "{} could not be written: {}; the recorders are kept, so merge them with farandole timeline merge {}",
        trace.string(), error.what(), options_.run_dir.string());
  }
}

void Recording::tell(const MergeResult& result) {
  if (result.overwritten > 0)
    log_warning(
        "the timeline lacks its oldest {} events because the recorders were full; raise --recorder-mb or "
        "record fewer steps",
        result.overwritten);
  if (result.left_early > 0)
    log_warning(
        "{} times, a rank left a collective before another rank had entered it; this exceeds the clock "
        "error, so compare times of different ranks with care",
        result.left_early);
  if (result.dropped + result.damaged > 0)
    log_warning(
        "the timeline lacks {} events because the recorders were full (raise --recorder-mb), and {} damaged "
        "events",
        result.dropped, result.damaged);
}

}  // namespace farandole

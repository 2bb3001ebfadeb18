#include "farandole/comm/recording/clock_rounds.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <pthread.h>
#include <sched.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/process/quiet_thread.h"

namespace farandole {
namespace {

using namespace std::chrono_literals;

constexpr auto look_for_questions = 200ms;
constexpr auto questions_follow_within = 20ms;  // the asking thread may have to wait for a core
constexpr auto answer_takes = 20ms;
constexpr int trips_a_round = 40;

struct Question {
  std::uint64_t number;  // 0 means that no more follow
};
struct Answer {
  std::uint64_t number;
  std::int64_t time_ns;
};

constexpr std::byte no_more_rounds{1};
// Longer than a round trip between idle hosts of a cluster. Above this, a later one is probably shorter.
constexpr std::int64_t long_ns = 100'000;

// Rank 0's answer to a rank about its clock.
enum class Verdict : std::uint8_t {
  shared,    // it is rank 0's clock
  measured,  // another rank measures it; the round trips follow
  unknown    // the rank must measure it
};

void answer(MessageChannel& channel, int rank) {
  while (channel.receive(rank).empty()) {
    const std::int64_t time = now_ns();
    channel.send(rank, byte_view(time));
  }
}

std::vector<RoundTrip> measure(MessageChannel& channel, int patience) {
  const int most = patience * 10;
  std::vector<RoundTrip> samples;
  std::int64_t shortest_ns = INT64_MAX;
  for (int since_shorter = 0;
       (since_shorter < patience || shortest_ns > long_ns) && static_cast<int>(samples.size()) < most;) {
    RoundTrip sample;
    sample.send_ns = now_ns();
    channel.send(0, {});
    const auto time = channel.receive(0);
    sample.receive_ns = now_ns();
    std::memcpy(&sample.reference_ns, time.data(), sizeof sample.reference_ns);
    samples.push_back(sample);
    const std::int64_t took_ns = sample.receive_ns - sample.send_ns;
    since_shorter = took_ns < shortest_ns - shortest_ns / 20 ? 0 : since_shorter + 1;
    shortest_ns = std::min(shortest_ns, took_ns);
  }
  channel.send(0, std::span(&no_more_rounds, 1));
  return samples;
}

// Rank 0's part. Returns true if any rank measured.
bool answer_all(MessageChannel& channel, std::uint32_t own_clock) {
  std::vector<std::uint32_t> clocks{own_clock};
  for (int rank = 1; rank < channel.size(); ++rank)
    clocks.push_back(value_of<std::uint32_t>(channel.receive(rank)).value_or(0));
  std::map<std::uint32_t, std::vector<std::byte>> known;
  bool any = false;
  for (int rank = 1; rank < channel.size(); ++rank) {
    const auto clock = clocks[static_cast<std::size_t>(rank)];
    const auto found = known.find(clock);
    const auto verdict = clock != 0 && clock == own_clock ? Verdict::shared
                         : found != known.end()           ? Verdict::measured
                                                          : Verdict::unknown;
    channel.send(rank, byte_view(verdict));
    if (verdict == Verdict::measured) channel.send(rank, found->second);
    if (verdict != Verdict::unknown) continue;
    any = true;
    answer(channel, rank);
    auto round_trips = channel.receive(rank);
    if (clock != 0) known.emplace(clock, std::move(round_trips));
  }
  return any;
}

}  // namespace

ClockRounds::ClockRounds(std::unique_ptr<MessageChannel> channel, std::chrono::nanoseconds pause,
                         std::function<void(const RoundTrip&)> take, std::chrono::nanoseconds patience)
    : channel_(std::move(channel)), pause_(pause), patience_(patience), take_(std::move(take)) {
  thread_ = start_quiet_thread([this] {
    ::pthread_setname_np(::pthread_self(), "clock rounds");
    try {
      channel_->rank() == 0 ? answer() : ask();
    } catch (const Error&) {  // an MPI error means that a peer is lost; the watchdog reports it
    }
  });
}

ClockRounds::~ClockRounds() {
  stop_.stop();
  thread_.join();
}

void ClockRounds::answer() {
  while (stop_.sleep(look_for_questions)) {
    answer_some();
    auto last = Clock::now();
    while (!asking_.empty() && Clock::now() - last < questions_follow_within) {
      if (answer_some())
        last = Clock::now();
      else
        ::sched_yield();
    }
    asking_.clear();
  }
}

bool ClockRounds::answer_some() {
  const auto message = channel_->receive_any();
  if (!message) return false;
  const auto question = value_of<Question>(message->bytes);
  if (!question || question->number == 0) {
    asking_.erase(message->from);
  } else {
    channel_->send(message->from, byte_view(Answer{question->number, now_ns()}));
    asking_.insert(message->from);
  }
  return true;
}

void ClockRounds::ask() {
  // Spreads the ranks over the pause, so that they do not all ask at the same time.
  const auto share = pause_ * channel_->rank() / channel_->size();
  if (!stop_.sleep(share)) return;
  do {
    if (const auto shortest = shortest_of_some()) take_(*shortest);
  } while (stop_.sleep(pause_));
}

std::optional<RoundTrip> ClockRounds::shortest_of_some() {
  if (!round_trip(patience_, true)) return std::nullopt;  // wakes rank 0
  std::optional<RoundTrip> shortest;
  const auto took = [](const RoundTrip& trip) { return trip.receive_ns - trip.send_ns; };
  for (int i = 0; i < trips_a_round; ++i) {
    const auto trip = round_trip(answer_takes, false);
    if (!trip) break;
    if (!shortest || took(*trip) < took(*shortest)) shortest = trip;
  }
  channel_->send(0, byte_view(Question{0}));
  return shortest;
}

std::optional<RoundTrip> ClockRounds::round_trip(std::chrono::nanoseconds patience, bool naps) {
  const Question question{++asked_};
  RoundTrip trip;
  trip.send_ns = now_ns();
  channel_->send(0, byte_view(question));
  const auto end = Clock::now() + patience;
  while (Clock::now() < end) {
    const auto message = channel_->receive_any();
    const auto answer = message ? value_of<Answer>(message->bytes) : std::nullopt;
    if (answer && answer->number == question.number) {
      trip.receive_ns = now_ns();
      trip.reference_ns = answer->time_ns;
      return trip;
    }
    if (message) continue;
    if (naps ? !stop_.sleep(1ms) : ::sched_yield() != 0) return std::nullopt;
  }
  return std::nullopt;
}

ClockSamples exchange_clocks(MessageChannel& channel, std::uint32_t clock, int patience) {
  if (channel.rank() == 0) return {{}, answer_all(channel, clock)};
  channel.send(0, byte_view(clock));
  switch (value_of<Verdict>(channel.receive(0)).value()) {
    case Verdict::shared: {
      const std::int64_t now = now_ns();
      return {{{now, now, now}}, false};
    }
    case Verdict::measured: {
      const auto bytes = channel.receive(0);
      ClockSamples samples;
      samples.round_trips.resize(bytes.size() / sizeof(RoundTrip));
      std::memcpy(samples.round_trips.data(), bytes.data(), samples.round_trips.size() * sizeof(RoundTrip));
      return samples;
    }
    case Verdict::unknown:
      break;
  }
  ClockSamples samples{measure(channel, patience), true};
  channel.send(0, std::as_bytes(std::span(samples.round_trips)));
  return samples;
}

}  // namespace farandole

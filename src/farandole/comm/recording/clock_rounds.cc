#include "farandole/comm/recording/clock_rounds.h"

#include <algorithm>
#include <optional>
#include <pthread.h>
#include <utility>

#include "farandole/base/error.h"

namespace farandole {
namespace {

using namespace std::chrono_literals;

constexpr auto first_answer_takes = 5s;  // its connection may have to be made
constexpr auto answer_takes = 20ms;
constexpr int trips_a_round = 40;
// Longer than a round trip between idle hosts of a cluster. Above this, a later one is probably shorter.
constexpr std::int64_t long_ns = 100'000;

std::int64_t took_ns(const RoundTrip& trip) {
  return trip.receive_ns - trip.send_ns;
}

std::optional<RoundTrip> shortest_of_some(ControlPlane& control) {
  std::optional<RoundTrip> shortest = control.ask_time(0, first_answer_takes);
  for (int i = 0; shortest && i < trips_a_round; ++i) {
    const auto trip = control.ask_time(0, answer_takes);
    if (trip && took_ns(*trip) < took_ns(*shortest)) shortest = trip;
  }
  return shortest;
}

}  // namespace

std::vector<RoundTrip> measure_clock(ControlPlane& control, int patience) {
  const int most = patience * 10;
  std::vector<RoundTrip> samples;
  std::int64_t shortest_ns = INT64_MAX;
  for (int since_shorter = 0;
       (since_shorter < patience || shortest_ns > long_ns) && static_cast<int>(samples.size()) < most;) {
    const auto sample = control.ask_time(0, samples.empty() ? first_answer_takes : answer_takes);
    if (!sample) break;
    samples.push_back(*sample);
    since_shorter = took_ns(*sample) < shortest_ns - shortest_ns / 20 ? 0 : since_shorter + 1;
    shortest_ns = std::min(shortest_ns, took_ns(*sample));
  }
  return samples;
}

bool measures_clock(const ControlPlane& control) {
  const auto& ranks = control.ranks();
  const auto own = static_cast<std::size_t>(control.rank());
  const auto has_own = [&](const RankFacts& facts) {
    return facts.clock == ranks[own].clock && facts.host == ranks[own].host;
  };
  return !has_own(ranks.front()) && std::ranges::find_if(ranks, has_own) - ranks.begin() == control.rank();
}

ClockRounds::ClockRounds(ControlPlane& control, std::chrono::nanoseconds pause,
                         std::function<void(std::span<const RoundTrip>)> take)
    : control_(control), pause_(pause), take_(std::move(take)) {
  thread_ = start_quiet_thread([this] { run(); });
}

ClockRounds::~ClockRounds() {
  stop_.stop();
  thread_.join();
}

void ClockRounds::run() {
  ::pthread_setname_np(::pthread_self(), "clock rounds");
  try {
    take_(best_of_bursts(measure_clock(control_)));
    // Spreads the ranks over the pause, so that they do not all ask at the same time.
    auto pause = pause_ + pause_ * control_.rank() / control_.size();
    for (; stop_.sleep(pause); pause = pause_)
      if (const auto shortest = shortest_of_some(control_)) take_(std::span(&*shortest, 1));
  } catch (const Error&) {  // Rank 0 has ended; the watchdog reports it.
  }
}

}  // namespace farandole

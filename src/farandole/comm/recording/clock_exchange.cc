#include "farandole/comm/recording/clock_exchange.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "farandole/base/clock.h"

namespace farandole {
namespace {

constexpr std::byte done{1};
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
    channel.send(rank, bytes_of(time));
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
  channel.send(0, std::span(&done, 1));
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
    channel.send(rank, bytes_of(verdict));
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

ClockSamples exchange_clocks(MessageChannel& channel, std::uint32_t clock, int patience) {
  if (channel.rank() == 0) return {{}, answer_all(channel, clock)};
  channel.send(0, bytes_of(clock));
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

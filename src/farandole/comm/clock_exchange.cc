#include "farandole/comm/clock_exchange.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "farandole/base/clock.h"

namespace farandole {
namespace {

constexpr std::byte done{1};
// Longer than between any two hosts of a cluster that have nothing else to do: it may get better yet.
constexpr std::int64_t long_ns = 100'000;

void answer(MessageChannel& channel, int rank) {
  channel.send(rank, {});  // your turn
  while (channel.receive(rank).empty()) {
    const std::int64_t time = now_ns();
    channel.send(rank, std::as_bytes(std::span(&time, 1)));
  }
}

}  // namespace

std::vector<RoundTrip> exchange_clocks(MessageChannel& channel, int patience) {
  const int most = patience * 10;
  std::vector<RoundTrip> samples;
  if (channel.rank() == 0) {
    for (int rank = 1; rank < channel.size(); ++rank) answer(channel, rank);
    return samples;
  }
  channel.receive(0);
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

}  // namespace farandole

#include "farandole/comm/clock_exchange.h"

#include <cstring>

#include "farandole/base/clock.h"

namespace farandole {

std::vector<RoundTrip> exchange_clocks(MessageChannel& channel, int round_trips) {
  std::vector<RoundTrip> samples;
  if (channel.rank() == 0) {
    for (int rank = 1; rank < channel.size(); ++rank) {
      channel.send(rank, {});  // your turn
      for (int i = 0; i < round_trips; ++i) {
        channel.receive(rank);
        const std::int64_t time = now_ns();
        channel.send(rank, std::as_bytes(std::span(&time, 1)));
      }
    }
    return samples;
  }
  channel.receive(0);
  for (int i = 0; i < round_trips; ++i) {
    RoundTrip sample;
    sample.send_ns = now_ns();
    channel.send(0, {});
    const auto answer = channel.receive(0);
    sample.receive_ns = now_ns();
    std::memcpy(&sample.reference_ns, answer.data(), sizeof sample.reference_ns);
    samples.push_back(sample);
  }
  return samples;
}

}  // namespace farandole

// Measures round trips between each rank and rank 0 for timeline/clock/clock_model.h: once, and repeatedly
// while a job runs, because drift is not constant over hours. A helper thread does this: on rank 0 it
// answers, and on one rank of each other clock it asks.
// Thread safety: only the main thread may create and destroy this.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/base/process/quiet_thread.h"
#include "farandole/comm/mpi/message_channel.h"
#include "farandole/timeline/clock/clock_model.h"

namespace farandole {

// Measures while a job runs.
class ClockRounds {
 public:
  // A rank asks once per `pause`, for a fraction of a millisecond in which rank 0's thread spins.
  // `take` receives the shortest round trip of each time, on this object's thread; it is not called on
  // rank 0. No other object may use the channel. A rank waits `patience` for its first answer, because
  // rank 0's thread sleeps.
  ClockRounds(std::unique_ptr<MessageChannel> channel, std::chrono::nanoseconds pause,
              std::function<void(const RoundTrip&)> take,
              std::chrono::nanoseconds patience = std::chrono::seconds(5));
  ~ClockRounds();
  ClockRounds(const ClockRounds&) = delete;
  ClockRounds& operator=(const ClockRounds&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  void answer();
  bool answer_some();
  void ask();
  std::optional<RoundTrip> shortest_of_some();
  std::optional<RoundTrip> round_trip(std::chrono::nanoseconds patience, bool naps);

  std::unique_ptr<MessageChannel> channel_;
  const std::chrono::nanoseconds pause_, patience_;
  const std::function<void(const RoundTrip&)> take_;
  std::set<int> asking_;     // ranks that have more questions
  std::uint64_t asked_ = 0;  // number of questions, so that a late answer is not assigned to a later question
  StopEvent stop_;
  std::thread thread_;
};

// Measured once, by all ranks together.
struct ClockSamples {
  // The round trips of this rank with rank 0. If both share a clock, one round trip that takes no time.
  // Empty on rank 0.
  std::vector<RoundTrip> round_trips;
  // True if this rank measured them, for itself and other ranks with its clock; on rank 0, true
  // if any rank did.
  bool measured = false;
};

// One rank per clock measures its clock against rank 0's, one rank after the other. It stops when
// `patience` consecutive round trips were not shorter than those before and the shortest is as short as
// between idle hosts, or after 10 · `patience` round trips. `clock` is the rank's clock_id(); 0 means that
// the rank always measures.
// Collective: every rank of the channel must call this in the same order.
ClockSamples exchange_clocks(MessageChannel& channel, std::uint32_t clock = clock_id(), int patience = 50);

}  // namespace farandole

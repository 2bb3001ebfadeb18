// Measures clocks repeatedly while a job runs, because drift is not constant over hours. A helper thread does
// this: on rank 0 it answers, and on one rank of each other clock it asks.
// Thread safety: only the main thread may create and destroy this object.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "farandole/base/stop_event.h"
#include "farandole/comm/mpi/message_channel.h"
#include "farandole/timeline/clock/clock_model.h"

namespace farandole {

class ClockRounds {
 public:
  // A rank asks once per `pause`, for a fraction of a millisecond in which rank 0's thread spins. `take`
  // receives the shortest round trip of each time, on this object's thread; it is not called on rank 0. No
  // other object may use the channel.
  ClockRounds(std::unique_ptr<MessageChannel> channel, std::chrono::nanoseconds pause,
              std::function<void(const RoundTrip&)> take);
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
  const std::chrono::nanoseconds pause_;
  const std::function<void(const RoundTrip&)> take_;
  std::set<int> asking_;     // ranks that have more questions
  std::uint64_t asked_ = 0;  // number of questions, so that a late answer is not assigned to a later question
  StopEvent stop_;
  std::thread thread_;
};

}  // namespace farandole

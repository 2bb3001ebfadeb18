// Measures round trips between a rank and rank 0 for timeline/clock/clock_model.h: at the start, once a
// minute while the job runs, because drift is not constant over hours, and at the end. One rank of each clock
// does this, on a helper thread; nobody waits for it.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "farandole/base/process/quiet_thread.h"
#include "farandole/comm/control/control_plane.h"
#include "farandole/timeline/clock/clock_model.h"

namespace farandole {

// Asks rank 0 for its time until `patience` consecutive round trips were not shorter than those
// before and the shortest is as short as between idle hosts, or 10 · `patience` times. Stops when
// rank 0 does not answer.
std::vector<RoundTrip> measure_clock(ControlPlane& control, int patience = 50);

// True if this rank measures: it is the first one with its clock, which is not rank 0's.
bool measures_clock(const ControlPlane& control);

class ClockRounds {
 public:
  // `take` gets the shortest round trips of each time, on this object's thread. `control` must outlive this.
  ClockRounds(ControlPlane& control, std::chrono::nanoseconds pause,
              std::function<void(std::span<const RoundTrip>)> take);
  ~ClockRounds();
  ClockRounds(const ClockRounds&) = delete;
  ClockRounds& operator=(const ClockRounds&) = delete;

 private:
  void run();

  ControlPlane& control_;
  const std::chrono::nanoseconds pause_;
  const std::function<void(std::span<const RoundTrip>)> take_;
  StopEvent stop_;
  std::thread thread_;
};

}  // namespace farandole

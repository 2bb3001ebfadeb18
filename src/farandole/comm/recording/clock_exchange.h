// Round trips between each rank and rank 0 for timeline/clock/clock_model.h.
#pragma once

#include <cstdint>
#include <vector>

#include "farandole/base/clock_id.h"
#include "farandole/comm/mpi/message_channel.h"
#include "farandole/timeline/clock/clock_model.h"

namespace farandole {

struct ClockSamples {
  // This rank's with rank 0: where both share a clock, one that took no time; none on rank 0.
  std::vector<RoundTrip> round_trips;
  // This rank has measured them, for itself and others of its clock; on rank 0: some rank has.
  bool measured = false;
};

// Collective over the channel's ranks. One rank of each clock measures it against rank 0's, one after the
// other, until `patience` round trips in a row were no shorter than those before, and some were as short as
// between hosts at leisure (at most ten times as many). `clock` is the rank's clock_id(), 0: measure in any
// case.
ClockSamples exchange_clocks(MessageChannel& channel, std::uint32_t clock = clock_id(), int patience = 50);

}  // namespace farandole

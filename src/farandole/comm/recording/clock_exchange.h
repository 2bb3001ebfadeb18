// Measures round trips between each rank and rank 0 for timeline/clock/clock_model.h.
#pragma once

#include <cstdint>
#include <vector>

#include "farandole/base/clock_id.h"
#include "farandole/comm/mpi/message_channel.h"
#include "farandole/timeline/clock/clock_model.h"

namespace farandole {

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

// Round trips between each rank and rank 0 for timeline/clock_model.h.
#pragma once

#include <vector>

#include "farandole/comm/message_channel.h"
#include "farandole/timeline/clock_model.h"

namespace farandole {

// Collective over the channel's ranks, one rank after the other; returns this rank's samples (none on rank
// 0).
std::vector<RoundTrip> exchange_clocks(MessageChannel& channel, int round_trips = 30);

}  // namespace farandole

// Round trips between each rank and rank 0 for timeline/clock_model.h.
#pragma once

#include <vector>

#include "farandole/comm/message_channel.h"
#include "farandole/timeline/clock_model.h"

namespace farandole {

// Collective over the channel's ranks, one rank after the other, each until `patience` round trips in a row
// were no shorter than those before, and some were as short as between hosts at leisure (at most ten times as
// many); returns this rank's samples (none on rank 0).
std::vector<RoundTrip> exchange_clocks(MessageChannel& channel, int patience = 50);

}  // namespace farandole

// Messages for people, on stderr: "farandole: [rank 1] text", the rank only where there are several.
// Usable from any thread.
#pragma once

#include <spdlog/spdlog.h>

namespace farandole {

// Call once, before threads start; rank < 0: not (yet) part of a job. FARANDOLE_LOG=debug|info|warn|error
// sets the level.
void set_up_log(int rank = -1, int world_size = 1);

}  // namespace farandole

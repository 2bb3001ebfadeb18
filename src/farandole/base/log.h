// Messages for people, written to stderr as "farandole: [rank 1] text". The rank is shown only
// if there are several.
// Thread safety: any thread may call this at any time. set_up_log() must run before other threads start.
#pragma once

#include <spdlog/spdlog.h>

namespace farandole {

// rank < 0 means that this process is not (yet) part of a job.
// FARANDOLE_LOG=debug|info|warn|error sets the level.
void set_up_log(int rank = -1, int world_size = 1);

}  // namespace farandole

// The times of all starts of a run, from what is kept about them: launcher's records, flight recorders.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "farandole/base/run/goodput.h"

namespace farandole {

// In their order; the one in `run` itself is the last. Without any record, the list is empty. `now_ns`
// (CLOCK_REALTIME): the last start still runs; 0: it does not.
std::vector<RunStartTimes> read_run_starts(const std::filesystem::path& run, std::int64_t now_ns = 0);

}  // namespace farandole

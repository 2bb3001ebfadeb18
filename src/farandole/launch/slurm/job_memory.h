// How much memory the processes of a job may use on this node together.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>

#include "farandole/base/process/launch_environment.h"

namespace farandole {

// What Slurm grants on this node; nullopt without Slurm or if it grants all memory (--mem=0).
// A pure function.
std::optional<std::int64_t> slurm_memory_bytes(const Environment& environment);

// The smallest of the machine's memory, the limit of the control group, and what Slurm grants; nullopt if
// none is known.
std::optional<std::int64_t> job_memory_bytes();

}  // namespace farandole

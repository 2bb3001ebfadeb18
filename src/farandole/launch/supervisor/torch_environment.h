// The environment variables from which programs of PyTorch learn their ranks, as torchrun sets
// them. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <string>
#include <string_view>

#include "farandole/base/process/launch_environment.h"
#include "farandole/launch/process/child_process.h"

namespace farandole {

// Returns RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and, unless it is set, MASTER_ADDR: the host of rank
// 0. Programs take LOCAL_RANK as the number of their GPU. If Slurm lets each task see only one GPU,
// LOCAL_RANK is 0 and LOCAL_WORLD_SIZE 1, as if torchrun had been started once for each GPU.
EnvironmentChanges torch_environment(int rank, int world_size, const Environment& environment);

// The first host of Slurm's notation: "gpu[08-10,12],login" is gpu08.
std::string first_host(std::string_view hosts);

}  // namespace farandole

// The hosts of a Slurm job, and what is left of them when some are lost. With `sbatch --no-kill`, the job
// goes on without these.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/process/launch_environment.h"
#include "farandole/launch/process/child_process.h"

namespace farandole {

// Returns the CPUs of each node from Slurm's notation: "2(x3),4" is 2, 2, 2, 4. Returns an empty list if the
// text cannot be read.
std::vector<int> cpus_by_node(std::string_view text);

struct ShrunkAllocation {
  std::vector<std::string> lost;  // Hosts.
  std::size_t hosts = 0;          // How many are left.
  // Ranks for the next start: the same number per CPU as before, rounded down, at least 1.
  int ranks = 0;
  // The variables that describe the hosts of the job to srun, mpirun and plan_launch().
  EnvironmentChanges environment;
};

// `before`: the hosts that the environment describes, in the order of Slurm; `now`: those that the job has.
// Returns std::nullopt if none is lost. A pure function.
std::optional<ShrunkAllocation> shrunk_allocation(const std::vector<std::string>& before,
                                                  const std::vector<std::string>& now, int ranks,
                                                  const Environment& environment);

struct LostHosts {
  std::optional<int> ranks = {};  // Of the next start; no value: no host is lost, or too many are.
  bool too_many = false;          // The next start would have fewer than `min_ranks`.
  bool unanswered = false;        // Slurm lists all hosts, but no step can be started on all of them.
  std::string message = {};       // For the user; empty if no host is lost.
};

// Asks Slurm whether this job, which has had `ranks` ranks, has lost hosts. If it has, changes the
// environment of this process accordingly. `min_ranks`: no value means `ranks`. `complete`: every rank has
// left a record of its end. If it is false, Slurm may not know yet that a host is lost. This then waits up
// to 15 minutes.
LostHosts look_for_lost_hosts(int ranks, std::optional<int> min_ranks, bool complete);

}  // namespace farandole

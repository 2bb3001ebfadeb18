// What the launcher around this process (Slurm, Open MPI, another MPI) says about rank and world size. Pure
// functions, usable from any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace farandole {

// Looks up an environment variable; nullptr or "" means that it is not set. &std::getenv fits.
using Environment = std::function<const char*(const char*)>;

// A number and the variable that says it.
struct LaunchValue {
  int value = 0;
  std::string variable;
};

// How many ranks the surrounding launcher meant to start, where it says so: mpirun's variables before those
// of a Slurm step, those of a step before those of the allocation. A variable without a positive number
// counts as not set.
std::optional<LaunchValue> expected_world_size(const Environment& environment);

// Which of them this process is. SLURM_PROCID counts in a step only: Slurm sets it to 0 in batch scripts,
// too.
std::optional<LaunchValue> launched_rank(const Environment& environment);

// Slurm job of this process, and whether it runs as a task of a step (srun) rather than in the batch script.
bool in_slurm_job(const Environment& environment);
bool in_slurm_step(const Environment& environment);

// One line for the user of a process for which MPI made a world of one although `expected` ranks were meant:
// what differs, the likely cause and the command that starts it right.
std::string world_of_one_message(const LaunchValue& expected, const Environment& environment);

}  // namespace farandole

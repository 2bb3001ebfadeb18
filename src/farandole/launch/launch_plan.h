// Decides how a program's ranks are started here: by srun or mpirun, on how many ranks, with which options
// and variables. A pure function, usable from any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/launch_environment.h"
#include "farandole/launch/child_process.h"

namespace farandole {

inline constexpr int all_cores = -1;

// What the user asked for.
struct LaunchRequest {
  std::optional<int> ranks;  // all_cores; nothing: Slurm's number of tasks, else 1
  bool prefix = false;
  std::filesystem::path log_folder;  // empty: no logs
  std::filesystem::path run_dir;     // of a program that does not name its own; empty: none
  bool trace_mpi = false;            // record the program's own MPI calls
  std::vector<std::string> program;  // and its arguments
};

// What is true of this machine.
struct LaunchFacts {
  int cores = 1;
  bool root = false;
  bool srun_found = false;
  bool mpirun_found = false;
  std::optional<int> terminal_columns;  // of stdout, where it is a terminal
  std::filesystem::path programs;       // folder of Farandole's programs; goes to the end of the ranks' PATH
};

struct LaunchPlan {
  enum class Starter { mpirun, srun };
  Starter starter = Starter::mpirun;
  int ranks = 1;
  std::vector<std::string>
      command;                     // the starter with its options; the program to start on each rank follows
  EnvironmentChanges environment;  // of the ranks
};

// Ranks: `request.ranks`; all_cores means outside Slurm the cores of this machine, inside SLURM_NTASKS or
// else all CPUs of the allocation; without a number SLURM_NTASKS, or else SLURM_NTASKS_PER_NODE on each node,
// or else one a node. Throws UserError where there is no starter, mpirun would refuse (root), the number
// makes no sense, or this process is already one of several ranks.
LaunchPlan plan_launch(const LaunchRequest& request, const LaunchFacts& facts,
                       const Environment& environment);

// CPUs of each node from Slurm's notation, "2(x3),4" = 2, 2, 2, 4; empty where it cannot be read.
std::vector<int> cpus_by_node(std::string_view text);

}  // namespace farandole

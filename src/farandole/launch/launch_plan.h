// Decides how the ranks of a program are started: with srun, mpirun or neither, how many, and with which
// options and variables. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "farandole/base/process/launch_environment.h"
#include "farandole/launch/process/child_process.h"

namespace farandole {

inline constexpr int all_cores = -1;

// Parses the value of -n: a number, or "all" for all_cores.
// Throws: UserError if it is neither.
int parse_ranks(const std::string& text);

// own: the launcher itself starts the ranks, which are all on this machine.
enum class Starter { own, mpirun, srun };

// The request of the user.
struct LaunchRequest {
  std::optional<Starter> starter;  // No value: as usual_starter() of launch_plan.cc says.
  bool oversubscribe = false;      // Allows more ranks than cores.
  std::optional<int> ranks;        // May be all_cores; no value: Slurm's number of tasks, or else 1.
  std::optional<int> nodes;        // The user's belief about the Slurm job, which is checked.
  bool local = false;              // Starts the ranks on this machine, also inside a Slurm job.
  bool prefix = false;
  std::filesystem::path log_folder;  // empty: no logs
  std::filesystem::path run_dir;     // For a program that does not name its own; empty: none.
  bool trace_mpi = false;            // Records the MPI calls of the program.
  bool trace_torch = false;          // Records what the program does with PyTorch in Python.
  bool torch_backend = false;        // Our collectives become those of torch.distributed.
  bool horovod = false;              // Our modules become those that scripts of Horovod import.
  int max_restarts = 0;              // How often a job that fails is started again.
  std::optional<int>
      min_ranks;  // Fewest ranks of a restart after hosts were lost; no value: as many as before.
  std::optional<int> requeue;  // How often a Slurm job that has saved a checkpoint is requeued.
  bool report = false;         // Logs in the run directory, and reports at the end.
  // Folder of a program that started this launcher for itself (farandole::launch); empty: there is none. If
  // the program ends first, the launcher ends the job at once and removes the folder.
  std::filesystem::path folder_of_caller;
  std::vector<std::string> program;  // Program and its arguments.
};

// Facts about this machine.
struct LaunchFacts {
  int cores = 1;
  bool root = false;
  bool srun_found = false;
  bool mpirun_found = false;
  std::optional<int> terminal_columns;  // Of stdout, if it is a terminal.
  std::filesystem::path programs;       // Folder of Farandole's programs; appended to the ranks' PATH.
  bool srun_has_pmix = true;            // `srun --mpi=list` names it, or SLURM_MPI_TYPE makes the choice.
  std::string srun_refusal = {};        // Why `srun --mpi=list` fails; empty: it does not.
  int free_port = 0;                    // Of TCP, for programs of PyTorch; 0: none is known.
};

struct LaunchPlan {
  Starter starter = Starter::own;
  int ranks = 1;
  int threads = 0;  // OMP_NUM_THREADS of each rank; 0: the user has set it.
  // srun or mpirun with options; the program to start on each rank follows. Empty with Starter::own.
  std::vector<std::string> command;
  EnvironmentChanges environment;  // Changes to the environment of the ranks.
};

// The number of ranks is `request.ranks`. all_cores means the cores of this machine outside Slurm; inside
// Slurm it means SLURM_NTASKS or else all CPUs of the allocation. Without a number, it is SLURM_NTASKS, or
// else SLURM_NTASKS_PER_NODE on each node, or else one rank per node.
// Throws: UserError if the starter is not found, a Slurm job has no srun and the ranks are not local, mpirun
// would refuse to run as root, the number is out of range, the job has another number of nodes, or
// this process is already one of several ranks.
LaunchPlan plan_launch(const LaunchRequest& request, const LaunchFacts& facts,
                       const Environment& environment);

}  // namespace farandole

// The supervisor is a process between the launcher, srun or mpirun and the program of one rank. It passes
// output on in whole lines, writes the log, passes signals on, and reports how the program ended. It changes
// the signal mask of the process. To the launcher it writes marked lines (launch/output/marked_lines.h) on
// its standard error.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/launch/records/launch_folder.h"

namespace farandole {

// First argument of a supervisor; its options follow.
inline constexpr std::string_view supervise_flag = "--supervise";

struct SupervisorOptions {
  // Returns the arguments after the program's name: the flag, the options, and after "--"
  // the program to start.
  std::vector<std::string> to_arguments() const;
  // Reads all options but the rank. Returns nullopt if the arguments do not come from to_arguments().
  static std::optional<SupervisorOptions> parse(const std::vector<std::string>& arguments);

  int rank = 0;
  int world_size = 1;
  // Folder for the rank's record; if it does not exist, the record goes to the launcher in a marked line.
  std::filesystem::path folder;
  bool mpirun = false;               // mpirun has started the supervisor.
  bool own = false;                  // The launcher has started it, without mpirun and srun.
  bool prefix = false;               // Print "[3 12:34:56.789] " in front of each line.
  std::filesystem::path log_folder;  // empty: no log
  LaunchedRun run;                   // This run also gets the record.
  std::string launch;                // JobRecord::launch
  std::string word;                  // In the marks of lines (launch/output/marked_lines.h).
  int threads = 0;         // OMP_NUM_THREADS, unless the rank has fewer cores; 0: the user has set it.
  bool trace_mpi = false;  // Preload the library of pmpi/.
  bool trace_torch = false, torch_backend = false, horovod = false;  // As in LaunchRequest.
  std::vector<std::string> program;                                  // Program and its arguments.
};

std::filesystem::path log_of(const std::filesystem::path& log_folder, int rank);

// From the launcher to supervisors that it has started: the program and what it has left running are killed.
inline const int kill_signal = SIGRTMIN;

// Runs the program to its end and returns its exit code, or 128 + N if signal N killed it. Signals of mpirun
// and srun are not passed on: they signal the whole process group of a rank, so the program already has them.
// If the parent ends, the program is killed. If nobody reads the output, 1 MiB waits in memory; beyond it the
// program waits. The recorder file of a killed rank is copied from this node to the run directory.
int supervise(const SupervisorOptions& options);

}  // namespace farandole

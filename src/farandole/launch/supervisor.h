// The process between srun or mpirun and one rank's program: passes output on in whole lines, logs it, passes
// signals on and reports how the program ended. Single-threaded; changes the process' signal mask.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/launch/launch_folder.h"

namespace farandole {

// Of a process that is started as a supervisor, in front of its options.
inline constexpr std::string_view supervise_flag = "--supervise";

struct SupervisorOptions {
  // What is behind the program's name: the flag, the options, and behind "--" what it is to start.
  std::vector<std::string> to_arguments() const;
  // All but the rank; nullopt where they are not what to_arguments() makes.
  static std::optional<SupervisorOptions> parse(const std::vector<std::string>& arguments);

  int rank = 0;
  int world_size = 1;
  std::filesystem::path
      folder;  // for the record of the rank's end; if it is not here, stderr carries the record
  std::string launcher_host;
  std::filesystem::path
      socket;           // of the launcher; empty, or on another host: output goes to stdout and stderr
  bool prefix = false;  // "[3 12:34:56.789] " in front of each line
  std::filesystem::path log_folder;  // empty: no log
  LaunchedRun run;                   // gets the record, too
  std::string launch;                // JobRecord::launch
  bool trace_mpi = false;            // preload pmpi/'s library
  std::vector<std::string> program;  // and its arguments
};

std::filesystem::path log_of(const std::filesystem::path& log_folder, int rank);

// Runs the program to its end and returns its exit code, or 128 + the signal that killed it. Signals from the
// parent are not passed on: Open MPI and Slurm signal a rank's whole process group, so the program has them
// already. When the parent ends, the program is killed. Memory stays bounded: a program whose output nobody
// takes has to wait. The recorder that a killed rank has left on this node comes into the run directory.
int supervise(const SupervisorOptions& options);

}  // namespace farandole

// Runs one function of a program on several ranks: the same program is started again on each of them.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "farandole/train/session.h"

namespace farandole {

struct LaunchOptions {
  // N: N ranks, on this machine or, inside a Slurm allocation, on its nodes. 0: as many as the allocation has
  // tasks or else CPUs, and without Slurm as many as this machine has cores. -N: N ranks on this machine, for
  // a trial inside an allocation.
  int np = 0;
  bool prefix_output_with_timestamp = false;  // "[3 12:34:56.789] " before each line: the rank and the time.
  // Where the output of the ranks goes; nullptr: to that of this process.
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  // Records the timeline and each rank's output, as farandole run --run-dir does; empty: no run directory.
  std::filesystem::path run_dir{};
};

// Returns whether this process is a rank of a job, so that launch() calls its function directly.
bool is_rank();

// Starts this program again on each rank, with the same arguments, and calls `function` there. Every rank
// runs main up to this call, so avoid side effects before it. Returns what `function` returned on rank 0, or
// the exit code of the rank that failed first; its message is on stderr. On a rank, this call returns what
// main must return. If this process is already a rank of a job, it calls `function` directly. SIGTERM and
// SIGINT reach the ranks.
// When this call ends, also when this process is killed, the ranks end and no temporary file stays.
// Throws: UserError if farandole-run is not found.
int launch(int argc, const char* const* argv, const LaunchOptions& options,
           const std::function<int(Session&, const std::vector<std::string>& arguments)>& function);

// The same from anywhere in a program. `arguments` and the result are texts in JSON; `arguments` reach every
// rank, and the result comes from rank 0. On a rank that launch() started, this call does not return. If
// something else started the rank, every rank gets the result. A program may call this several times: ranks
// of a later call receive the earlier results in order.
// Throws: Error with "rank 3 on HOST: " and the message of the rank that failed first, and its exit code;
// UserError if `arguments` or the result are not JSON.
std::string launch(const LaunchOptions& options,
                   const std::function<std::string(Session&, const std::string& arguments)>& function,
                   const std::string& arguments = "null");

}  // namespace farandole

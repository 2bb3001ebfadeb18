// `farandole run`: starts a program on several ranks, waits for it, and reports which rank failed first.
// Changes the signal mask of the process.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <string>

#include "farandole/base/process/launch_environment.h"
#include "farandole/launch/launch_plan.h"

namespace farandole {

// Returns the exit code of the rank that failed first, or 0. SIGTERM and SIGINT are passed to every rank; a
// third one kills the job. SIGUSR1 and SIGUSR2 are passed on each time. If the job fails, it may be started
// again (restart_policy.h); the environment of the ranks then tells how often.
// Throws: UserError in the cases of plan_launch, if the program is not found, or if the log
// folder cannot be created.
int launch(const LaunchRequest& request);

// Throws: UserError if --torch-backend has another value than farandole.
void check_torch_backend(const std::string& backend);

// Returns the program that a rank would execute: from PATH, or else from the folder of Farandole's programs.
// Throws: UserError if there is none.
std::filesystem::path require_program(const std::string& program);

// is_supervisor returns whether these arguments, which launch() writes, make this process the supervisor of a
// rank. run_supervisor does the work of the supervisor and returns its exit code.
bool is_supervisor(int argc, const char* const* argv);
int run_supervisor(int argc, const char* const* argv);

inline constexpr const char* launched_by_variable = "FARANDOLE_LAUNCHED_BY";

// Returns the value of the variable for a launcher that this process starts.
std::string launched_by(const std::filesystem::path& folder);
// Returns the folder if the parent of this process is the program that set the variable. Otherwise this
// process belongs to one of its ranks, or to no such program, and the result is empty.
std::filesystem::path folder_of_caller(const Environment& environment);
// Returns the folder if the variable is set. The ranks ask for it.
std::filesystem::path folder_of_launch(const Environment& environment);

}  // namespace farandole

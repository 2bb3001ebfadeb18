// Starts a program on several ranks, waits for it and says which rank failed first: `farandole run`.
// Single-threaded; changes the process' signal mask.
#pragma once

#include "farandole/launch/launch_plan.h"

namespace farandole {

// Returns the exit code of the rank that failed first, 0 if none did. SIGTERM and SIGINT are passed to every
// rank, a second one ends the job; SIGUSR1 and SIGUSR2 are passed on each time. Throws UserError (see
// plan_launch), also where the program is not found or the log folder cannot be made.
int launch(const LaunchRequest& request);

// Whether these arguments make this process a rank's supervisor, as launch() starts it; then what it is to
// do, and its exit code.
bool is_supervisor(int argc, const char* const* argv);
int run_supervisor(int argc, const char* const* argv);

}  // namespace farandole

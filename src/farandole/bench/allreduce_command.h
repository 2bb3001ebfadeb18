// The command line of `farandole bench allreduce`. One rank's main.
#pragma once

namespace farandole {

// argv[1] is "allreduce". Returns the exit code; throws Error.
int allreduce_command(int argc, const char* const* argv);

}  // namespace farandole

// The commands of `farandole bench`, for one rank. argv[1] is the name of the benchmark. They
// return the exit code.
// Thread safety: none; use from one thread at a time.
// Throws: Error if an option is wrong or the measurement fails.
#pragma once

namespace farandole {

int allreduce_command(int argc, const char* const* argv);
int step_command(int argc, const char* const* argv);
int timeline_command(int argc, const char* const* argv);
int checkpoint_command(int argc, const char* const* argv);

}  // namespace farandole

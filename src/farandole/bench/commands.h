// The commands of `farandole bench`. Each is one rank's main: argv[1] is the name of the benchmark. They
// return the exit code and throw Error.
#pragma once

namespace farandole {

int allreduce_command(int argc, const char* const* argv);
int step_command(int argc, const char* const* argv);
int timeline_command(int argc, const char* const* argv);
int analyze_command(int argc, const char* const* argv);

}  // namespace farandole

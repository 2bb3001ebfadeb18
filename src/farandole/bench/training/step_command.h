// The command line of `farandole bench step`: built where there is LibTorch. One rank's main.
#pragma once

namespace farandole {

// argv[1] is "step". Returns the exit code; throws Error.
int step_command(int argc, const char* const* argv);

}  // namespace farandole

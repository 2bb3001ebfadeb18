// The command `farandole train`. Called once, by main.
#pragma once

namespace farandole {

// Reads the options, trains, returns the exit code; what goes wrong is said on stderr in one line.
int train_command(int argc, const char* const* argv);

}  // namespace farandole

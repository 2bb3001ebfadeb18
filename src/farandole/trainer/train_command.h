// The commands `farandole train` and `farandole config`. main calls one of them once.
// Thread safety: none; use from one thread at a time.
#pragma once

namespace farandole {

// Reads the options, trains, and returns the exit code. Errors are printed on stderr in one line.
int train_command(int argc, const char* const* argv);

// Returns the exit code. Errors become one line on stderr.
int config_command(int argc, const char* const* argv);

}  // namespace farandole

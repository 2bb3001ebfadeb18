// The command `farandole train`. main calls it once.
// Thread safety: none; use from one thread at a time.
#pragma once

namespace farandole {

// Reads the options, trains, and returns the exit code. Errors are printed on stderr in one line.
int train_command(int argc, const char* const* argv);

}  // namespace farandole

// The body of `farandole config`: which value each option of `farandole train` has, and where it comes from.
// Thread safety: none; use from one thread at a time.
#pragma once

namespace farandole {

// Returns the exit code. Errors become one line on stderr.
int config_command(int argc, const char* const* argv);

}  // namespace farandole

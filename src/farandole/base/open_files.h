// How many files this process may hold open.
#pragma once

#include <cstddef>

namespace farandole {

// Raises the process's soft limit (RLIMIT_NOFILE) so that `count` more can be opened. Throws UserError where
// the hard limit does not allow it. Called by one thread.
void allow_open_files(std::size_t count);

}  // namespace farandole

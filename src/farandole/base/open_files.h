// The limit on the files that this process may hold open.
#pragma once

#include <cstddef>

namespace farandole {

// Raises the process's soft limit (RLIMIT_NOFILE) so that `count` more files can be opened.
// Throws: UserError if the hard limit does not allow it.
// Thread safety: none; use from one thread at a time.
void allow_open_files(std::size_t count);

}  // namespace farandole

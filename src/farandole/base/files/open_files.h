// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <string_view>

namespace farandole {

// Raises the process's soft limit (RLIMIT_NOFILE) so that `count` more files or sockets can be opened.
// Throws: UserError if the hard limit does not allow it. `advice` ends its message, as in "merge fewer
// at a time".
void allow_open_files(std::size_t count, std::string_view advice);

}  // namespace farandole

// Reads the flight recorders of the ranks. They are used if a run has no merged trace (it was killed or still
// runs), or if the merged trace has few of its ranks.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// `path` is a run directory with recorder/*.ftl, a folder of such files, or one file. Clocks are aligned as
// in a merge. Missing or damaged files are named in the warnings.
// Throws: UserError if there is no recorder file; CorruptInput if no file can be read.
RunModel read_recorders(const std::filesystem::path& path);

}  // namespace farandole

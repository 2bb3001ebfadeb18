// Reads the ranks' flight recorders themselves, where a run has no merged trace (it was killed, or goes on),
// or one of few of its ranks. Usable from any thread.
#pragma once

#include <filesystem>

#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// `path` is a run directory with recorder/*.ftl, such a folder, or one file. Clocks are aligned as the merge
// does it. What is missing or damaged is named in the warnings; throws UserError where there is no recorder's
// file, CorruptInput where none can be read.
RunModel read_recorders(const std::filesystem::path& path);

}  // namespace farandole

// How a program that calls farandole::launch, its launcher and its ranks find each other: through a folder,
// which an environment variable names.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <string>

#include "farandole/base/process/launch_environment.h"

namespace farandole {

inline constexpr const char* launched_by_variable = "FARANDOLE_LAUNCHED_BY";

// Returns the value of the variable for a launcher that this process starts.
std::string launched_by(const std::filesystem::path& folder);
// Returns the folder if the parent of this process is the program that set the variable. Otherwise this
// process belongs to one of its ranks, or to no such program, and the result is empty.
std::filesystem::path folder_of_caller(const Environment& environment);
// Returns the folder if the variable is set. The ranks ask for it.
std::filesystem::path folder_of_launch(const Environment& environment);

}  // namespace farandole

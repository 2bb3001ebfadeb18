// Where recorders lie in a run directory, which that is for a program that was told none, and how its
// launcher learns of it. Usable from any thread while the environment is not changed.
#pragma once

#include <filesystem>

namespace farandole {

// FARANDOLE_RUN_DIR, absolute, for programs change their folder; empty: there is none.
std::filesystem::path run_dir_of_environment();

// RUN/recorder/rank-0003.ftl
std::filesystem::path recorder_file(const std::filesystem::path& run_dir, int rank);

// Where a rank's supervisor wants to read the run directory, for the rank's profile or a script around it may
// say what the launcher's command line does not: the variable that has the path of a memfd of this name.
inline constexpr const char* run_dir_wanted = "FARANDOLE_RUN_DIR_WANTED";
inline constexpr const char* run_dir_memory = "farandole-run-dir";
// For the rank to call as soon as it knows, and with "" where the folder is about to go. Does nothing where
// nobody wants to know, or no longer does.
void tell_run_dir(const std::filesystem::path& run_dir) noexcept;

}  // namespace farandole

// Where recorders lie in a run directory, and which that is for a program that was told none. Usable from any
// thread while the environment is not changed.
#pragma once

#include <filesystem>

namespace farandole {

// FARANDOLE_RUN_DIR, absolute, for programs change their folder; empty: there is none.
std::filesystem::path run_dir_of_environment();

// RUN/recorder/rank-0003.ftl
std::filesystem::path recorder_file(const std::filesystem::path& run_dir, int rank);

}  // namespace farandole

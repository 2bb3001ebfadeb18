// The path of recorder files in a run directory, the run directory in the environment, and how a rank reports
// its run directory to its launcher.
// Thread safety: any thread may call this at any time. Meanwhile no thread may change the environment.
#pragma once

#include <filesystem>
#include <optional>

namespace farandole {

// FARANDOLE_RUN_DIR as an absolute path, because programs change their working directory. Empty if
// it is not set.
std::filesystem::path run_dir_of_environment();

// RUN/recorder/rank-0003.ftl
std::filesystem::path recorder_file(const std::filesystem::path& run_dir, int rank);
// The rank in the name of such a file; std::nullopt if it has another name.
std::optional<int> rank_of_recorder(const std::filesystem::path& file);

// This variable holds the path of a memfd with the name `run_dir_memory`. The rank's supervisor reads the run
// directory from it, because the rank's profile or a script may set a run directory that the launcher's
// command line does not contain.
inline constexpr const char* run_dir_wanted = "FARANDOLE_RUN_DIR_WANTED";
inline constexpr const char* run_dir_memory = "farandole-run-dir";
// A rank calls this as soon as it knows the run directory, and with "" before the folder is removed. It does
// nothing if no supervisor wants to know, or if the supervisor has ended.
void tell_run_dir(const std::filesystem::path& run_dir) noexcept;

}  // namespace farandole

// Names of the files of a run directory, and what they say about its progress, for readers that must be
// quick. Also the run directory in the environment, and how a rank reports its run directory to its launcher.
// Thread safety: any thread may call this at any time. Meanwhile no thread may change the environment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace farandole {

// The objects on the last lines of metrics.jsonl, oldest first; none if it cannot be read. Reads the last 16
// KiB, or up to 1 MiB if a line is longer than that. A line that a kill has cut off is left out.
std::vector<nlohmann::ordered_json> last_metrics(const std::filesystem::path& file);

// The last step in metrics.jsonl; std::nullopt if it has none or cannot be read.
std::optional<std::int64_t> last_logged_step(const std::filesystem::path& file);

// The file that says what ran (base/run/run_json.h).
std::filesystem::path run_json_of(const std::filesystem::path& run);

// The step in the name of a checkpoint's file, "step-00001200.h5"; std::nullopt for other names.
std::optional<std::int64_t> step_of_checkpoint(const std::filesystem::path& file);
// The files of `folder` with names of checkpoints, highest step first. Each of them is complete. Empty if the
// folder does not exist.
// Throws: Error if the folder cannot be read.
std::vector<std::filesystem::path> checkpoint_files(const std::filesystem::path& folder);
// The first of these in the folder of a run's checkpoints; empty if there is none or the folder
// cannot be read.
std::filesystem::path newest_checkpoint(const std::filesystem::path& run);

// The newest file below `run` that looks like a checkpoint of the program's own, such as model.pt; empty if
// there is none. Looks only two folders deep, and not into the folders that Farandole writes.
std::filesystem::path newest_checkpoint_of_program(const std::filesystem::path& run);

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

// Names of the files of a run directory, and what they say about its progress, for readers that
// must be quick.
// Thread safety: any thread may call this at any time.
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

}  // namespace farandole

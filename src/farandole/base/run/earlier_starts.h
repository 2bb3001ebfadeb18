// What the earlier starts of a run have recorded: RUN/starts/0001, RUN/starts/0002 and so on. Each of these
// folders has the layout of a run directory, without checkpoints and metrics.
// Thread safety: any thread may call this at any time. Only one process of a job may write.
#pragma once

#include <filesystem>
#include <vector>

namespace farandole {

// In the order of the starts.
std::vector<std::filesystem::path> earlier_starts(const std::filesystem::path& run_dir);

// Whether the folder is one of these, as far as its path tells.
bool is_earlier_start(const std::filesystem::path& folder);

// Rank 0 calls this before a new start records, after one process of each node has copied the recorder
// files that are on that node's disk (stage_out_all() in staging_file.h). If an earlier start has recorded
// in `run_dir`, this moves its recorders, its trace and its reports to the next folder of RUN/starts, and
// copies run.json and the launcher's records about that start. The newest 20 starts keep their recorders
// and their trace.
// Throws: Error if a file cannot be moved. Nothing is lost then.
void keep_earlier_start(const std::filesystem::path& run_dir);

// The launcher calls this before it writes RUN/launch/job.json, so that keep_earlier_start() still finds the
// record of the earlier start. Reports no errors.
void keep_earlier_job(const std::filesystem::path& launch_folder) noexcept;

}  // namespace farandole

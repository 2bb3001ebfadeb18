// What a process records, and where.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "farandole/timeline/gpu/activity_steps.h"
#include "farandole/timeline/step_window.h"

namespace farandole {

struct RecordingOptions {
  // Folder for recorder/rank-0003.ftl of each rank and timeline.json.gz from rank 0.
  std::filesystem::path run_dir;
  StepWindow window{};
  // Steps whose kernels and copies are recorded, if there is a GPU.
  ActivitySteps gpu_activity = ActivitySteps::sample();
  std::size_t recorder_bytes = std::size_t{64} << 20;
  // Place of the recorder files while the run lasts, as `--recorder-dir` in docs/run-directory.md. No value:
  // FARANDOLE_RECORDER_DIR decides.
  std::optional<std::string> recorder_dir{};
  std::size_t merge_limit = 64;  // Largest number of ranks in timeline.json.gz; 0: all.
};

}  // namespace farandole

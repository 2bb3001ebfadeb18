// The checkpoints of one run directory: written in the background by a thread of its own, published
// atomically, pruned to the last K and the best. One object, on rank 0 only, used by one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farandole/checkpoint/snapshot.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

struct CheckpointOptions {
  std::filesystem::path folder;  // RUN/checkpoints
  int keep_last = 3;             // at least 1; the best by score is kept besides
};

struct CheckpointInfo {
  std::filesystem::path file;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double score = 0;  // NaN: not evaluated
  std::uintmax_t bytes = 0;
};

class CheckpointStore {
 public:
  // Creates the folder, and removes temporary files that dead writers left there. Throws Error, UserError.
  CheckpointStore(CheckpointOptions options, Timeline& timeline);
  ~CheckpointStore();  // finishes what was begun; a failure is logged

  // Takes the snapshot over and returns at once; waits only where the previous one is still being written.
  // A failed write of the previous one is thrown here, then this snapshot was not taken, or by wait().
  void save(Snapshot snapshot);
  void wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// step-00001200.h5
std::string checkpoint_name(std::int64_t step);

// The files of `folder` that are named as checkpoints are, highest step first; none where there is no such
// folder.
std::vector<std::filesystem::path> checkpoint_files(const std::filesystem::path& folder);

// Throws as read_checkpoint_header does.
CheckpointInfo read_checkpoint_info(const std::filesystem::path& file);

// Newest first, from names and attributes only; files that are no checkpoints are left out.
std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& folder);

// The newest that verifies; damaged ones are named in the log and passed over. nullopt: there is no
// checkpoint file at all. Throws CorruptInput where there are some and none verifies.
std::optional<CheckpointInfo> newest_valid_checkpoint(const std::filesystem::path& folder);

}  // namespace farandole

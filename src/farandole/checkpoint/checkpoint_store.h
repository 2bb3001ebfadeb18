// The checkpoints of one run directory: written in the background by a thread of its own, published atomically, pruned to the
// last K and the best. One object, on rank 0 only, used by one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
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
  CheckpointStore(CheckpointOptions options, Timeline& timeline);
  ~CheckpointStore();  // finishes what was begun; a failure is logged

  // Takes the snapshot over and returns at once; waits only where the previous one is still being written.
  // A failed write of the previous one is thrown here and by wait().
  void save(Snapshot snapshot);
  void wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Newest first, from names and attributes only; files that are no checkpoints are left out.
std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& folder);

// The newest that verifies; damaged ones are named in the log and passed over. nullopt: there is no checkpoint file at all.
// Throws CorruptInput where there are some and none verifies.
std::optional<CheckpointInfo> newest_valid_checkpoint(const std::filesystem::path& folder);

}  // namespace farandole

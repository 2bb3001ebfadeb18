// The checkpoints of one run directory. A helper thread writes them in the background, publishes them
// atomically, and removes all but the last K, the best, and one of every N steps of those that are finite.
// Thread safety: none; use from one thread at a time. Only rank 0 may use this.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/checkpoint/checkpoint_file.h"
#include "farandole/checkpoint/snapshot.h"
#include "farandole/timeline/timeline.h"

namespace farandole {

struct CheckpointOptions {
  std::filesystem::path folder;  // RUN/checkpoints
  int keep_last = 3;             // at least 1; the checkpoint with the best score is also kept
  std::int64_t keep_every = 0;   // the first checkpoint of every so many steps is never removed; 0: none
  // Asked before a checkpoint is published and before others are removed. False: the folder is
  // another job's now. If it throws, nothing is published or removed.
  std::function<bool()> may_write = [] { return true; };
};

struct CheckpointInfo {
  std::filesystem::path file;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  double score = 0;  // NaN if it was not evaluated
  std::uintmax_t bytes = 0;
  std::string not_finite;  // as in Snapshot
};

class CheckpointStore {
 public:
  // Creates the folder, and removes temporary files of writers that no longer run.
  // Throws: UserError if an option is invalid.
  // Throws: Error if the folder cannot be used.
  CheckpointStore(CheckpointOptions options, Timeline& timeline);
  ~CheckpointStore();  // finishes a checkpoint that was begun

  // Waits up to `limit` for it. False while a snapshot is being written; save() would wait.
  bool idle(std::chrono::milliseconds limit = {}) const;
  // A builder with the memory of the last snapshot that was written. If idle() is false, it has
  // none and allocates.
  SnapshotBuilder builder();
  // Takes the snapshot and returns immediately. Waits only if the previous snapshot is still being written.
  // If a snapshot cannot be written, all other checkpoints but the newest and the best are removed, and it is
  // tried again. If this fails too, it is lost with a warning. The helper thread calls `complete` before it
  // reads the snapshot, for example to wait for bytes that still come from a device. If it throws, the
  // snapshot is lost.
  void save(Snapshot snapshot, std::function<void()> complete = {});
  // Throws: Error if the last snapshot could not be written.
  void wait();
  double write_seconds() const;  // time that the last snapshot took to write; 0 before that

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// step-00001200.h5
std::string checkpoint_name(std::int64_t step);

// Throws: as read_checkpoint_header().
CheckpointInfo read_checkpoint_info(const std::filesystem::path& file);

// Lists checkpoints, newest first, using only names and attributes. Other files are left out.
std::vector<CheckpointInfo> list_checkpoints(const std::filesystem::path& folder);

// The newest checkpoint that can be verified and is finite. The others are named in the log and skipped.
// std::nullopt if there is no checkpoint file.
// Throws: CorruptInput if there are checkpoint files but none is usable.
std::optional<CheckpointInfo> newest_valid_checkpoint(const std::filesystem::path& folder);

// The same with its contents, read as by read_checkpoint(). Every file is read only once.
std::optional<std::pair<std::filesystem::path, Snapshot>> read_newest_checkpoint(
    const std::filesystem::path& folder, const ArrayMemory& memory = {});

}  // namespace farandole

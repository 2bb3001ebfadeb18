// The checkpoints of a run: when one is saved, and how the state of the training gets into it.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/checkpoint/snapshot.h"
#include "farandole/train/run/checkpoint_schedule.h"
#include "farandole/train/run/device_copies.h"
#include "farandole/train/run/training_state.h"
#include "farandole/train/session.h"

namespace farandole {

// Every rank has one. Only that of rank 0 writes.
// Collective: every rank of the job must call all functions but hold() and saved_step() in the same order.
class RunCheckpoints {
 public:
  struct Options {
    std::filesystem::path run_dir;
    CheckpointInterval every;
    double mtbf = 0;
    int keep = 0;
    std::int64_t keep_every = 0;
  };
  // `session` must outlive this object. The run is at `step`, which is in a checkpoint or not.
  RunCheckpoints(Session& session, const Options& options, std::int64_t step, bool is_saved);

  // Whether a checkpoint is due at this step, within an epoch. If a checkpoint may be postponed, it is due
  // when the one before has been written.
  bool due(std::int64_t step, bool may_be_postponed);
  // Waits until the last checkpoint has been written.
  // Throws: Error on all ranks if it could not be.
  void wait();
  // Waits only until save() would not.
  void await_writer();
  // Saves what `capture` copies; it gets the memory of rank 0's snapshot, and copies of tensors on a GPU.
  // `describe` sets the rest of the snapshot on rank 0.
  void save(std::int64_t step, const std::function<void(SnapshotBuilder&, DeviceCopies*)>& capture,
            const std::function<void(Snapshot&)>& describe);
  // The first checkpoint will have this size.
  void prepare(std::size_t bytes);
  // To be called before tensors change that are still being copied from a GPU.
  void hold();
  std::int64_t saved_step() const { return saved_step_; }  // -1: none

 private:
  Session& session_;
  std::int64_t saved_step_;
  std::int64_t ask_at_ = 0;  // The step at which rank 0 decides again whether a checkpoint is saved.
  // On rank 0 only.
  std::unique_ptr<CheckpointStore> store_;
  std::optional<CheckpointSchedule> schedule_;
  std::optional<DeviceCopies> copies_;  // If the parameters are on a GPU.
};

}  // namespace farandole

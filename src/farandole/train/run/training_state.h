// Saves the whole state of a training run as a snapshot and restores it.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <utility>
#include <variant>
#include <vector>

#include "farandole/checkpoint/checkpoint_file.h"
#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/checkpoint/snapshot.h"
#include "farandole/train/optimizer/loss_scaler.h"
#include "farandole/train/run/device_copies.h"
#include "farandole/train/session.h"

namespace farandole {

// The progress of the run; saved with the tensors. It does not depend on the number of ranks or the batch
// size, so a run can continue with others.
struct Position {
  std::int64_t step = 0;   // optimizer steps done
  std::int64_t epoch = 0;  // epochs completed
  // Samples of the current epoch's order that all ranks together have already seen: always its first ones.
  std::int64_t samples = 0;
};

// What is saved. The objects must outlive this one.
struct TrackedState {
  TrackedState() = default;
  TrackedState(torch::nn::Module& model, torch::optim::Optimizer& optimizer)
      : modules{{"", &model}}, optimizers{&optimizer} {}

  // By what comes before the names of its tensors, such as "critic." or nothing.
  std::vector<std::pair<std::string, torch::nn::Module*>> modules;
  std::vector<torch::optim::Optimizer*> optimizers;  // Their parameters are those of the modules.
  // Of a program, by name; the same on all ranks.
  std::vector<std::pair<std::string, std::variant<torch::Tensor*, double*, std::int64_t*>>> values;
  // Used by the optimizers; those without loss scaling are null.
  std::vector<LossScaler*> scalers;
};

// Throws: CorruptInput if the snapshot has no position.
Position position_of(const Snapshot& snapshot);

// What the order of the samples in an epoch depends on.
struct SampleOrder {
  std::int64_t samples = 0;  // of the data set
  std::uint64_t hash = 0;    // of the data set
  std::uint64_t seed = 0;
};

void add_order(SnapshotBuilder& snapshot, const SampleOrder& order);
// Throws: UserError if the snapshot was taken within an epoch of another order. Some samples of the epoch
// would be seen twice, and others never.
void check_order(const Snapshot& snapshot, const SampleOrder& order, const char* data_option = "--data",
                 const char* seed_option = "--seed");

// The bytes of the state that capture() copies from a GPU.
std::size_t bytes_on_gpu(const TrackedState& state);

// Copies the state into the snapshot on rank 0, so that training may continue. The random generators of all
// ranks are gathered. With `copies`, tensors on the device are added there; the caller starts these copies.
// Collective: every rank of the group must call this in the same order.
void capture(Session& session, const TrackedState& state, const Position& position, SnapshotBuilder& snapshot,
             DeviceCopies* copies = nullptr);

// Waits until the last checkpoint is written. Rank 0 passes the store, the others pass nullptr. The ranks
// meet again and again, so that a slow disk is no stall.
// Collective: every rank of the job must call this in the same order.
void await_writer(Session& session, const CheckpointStore* store);

// The memory of the modules' tensors, for read_checkpoint(): parameters and buffers are then read where they
// are used. The modules must outlive it.
ArrayMemory memory_of(const TrackedState& state);
ArrayMemory memory_of(torch::nn::Module& model);

// Copies the parameters and buffers of a snapshot into the model, except those that were
// read into memory_of(model).
// Throws: UserError if it is of another model.
void load_model(const Snapshot& snapshot, torch::nn::Module& model);

// The same with all of the state. Optimizers take over the memory of the snapshot's arrays.
// Throws: UserError if the modules differ.
void load_state(Snapshot& snapshot, const TrackedState& state);

// Rank 0 passes the snapshot, the others pass nullptr; all ranks get its state, as load_state() does. If the
// snapshot has no generator for a rank because the number of ranks has grown, that rank keeps its own. Values
// and scalers that the snapshot lacks keep their own state, too.
// Throws: UserError on all ranks if the modules differ.
// Collective: every rank of the group must call this in the same order.
void restore(Session& session, const TrackedState& state, Snapshot* snapshot);

}  // namespace farandole

// The training of a fit: steps within epochs, and its state in checkpoints.
// Thread safety: call from the training thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/optim/optimizer.h>
#include <torch/types.h>
#include <vector>

#include "farandole/checkpoint/snapshot.h"
#include "farandole/estimator/objective.h"
#include "farandole/estimator/scores.h"
#include "farandole/tables/table_reader.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/learning_rate.h"
#include "farandole/train/run/training_state.h"

namespace farandole {

// What one optimizer step did.
struct StepResult {
  torch::Tensor loss;  // Loss of this rank. The mean over the ranks is the mean over the rows.
  double lr = 0;
  std::int64_t rows = 0;  // That all ranks have read.
  double seconds = 0;
};

// Collective: every rank of the job must call all functions but the const ones in the same order.
class EpochTrainer {
 public:
  // Broadcasts the model. If `stop` returns true on any rank, stopping() becomes true on all ranks after the
  // next step. The arguments must outlive this object.
  // Throws: UserError if the model has no parameters to train.
  EpochTrainer(Session& session, const EstimatorOptions& options, const DataTable& table, RowSelection rows,
               Objective& objective, const std::function<bool()>& stop);

  // Continues from the snapshot that rank 0 gives; returns false if there is none.
  // Throws: UserError on all ranks if it was saved within an epoch of other rows.
  bool resume(std::optional<Snapshot> snapshot);
  // Adds all that resume() needs, on rank 0.
  void save(SnapshotBuilder& snapshot);

  void begin_epoch();
  // Throws: Error and its kin on all ranks, for rows, losses or gradients that cannot be trained on.
  StepResult step();
  bool epoch_ended() const { return passes_done_ >= passes_; }
  // Throws: Error on all ranks if the loss is not finite.
  EpochResult end_epoch();

  bool stopping() const { return stopping_; }
  std::int64_t steps_done() const { return step_; }
  std::int64_t epochs_done() const { return epoch_; }
  std::int64_t total_steps() const { return epoch_steps_ * options_.epochs - schedule_offset_; }

 private:
  struct Loaded {
    Rows rows;
    // The gradient is that of the summed row losses, times this weight. The ranks' average is therefore the
    // mean over all rows.
    double weight = 1;
  };
  // The batches of this rank for one step. A rank that has no rows left has none, and contributes zeros
  // to the gradients.
  struct Batches {
    std::vector<Loaded> own;
    std::int64_t rows_read = 0;  // By all ranks.
    bool empty = false;          // On all ranks, because every row has a NaN and is skipped.
  };
  double rate_of(std::int64_t step) const { return rate_.at(step + schedule_offset_); }
  std::int64_t steps_in(std::int64_t passes) const {
    return (passes + options_.accumulate - 1) / options_.accumulate;
  }
  std::int64_t passes_at_most(std::int64_t passes) const;
  SampleOrder order() const { return {reader_.selected_rows(), reader_.order_hash(), options_.seed}; }
  void guard(const std::function<void()>& work);
  Batches load(std::int64_t passes);
  double mean_loss();

  Session& session_;
  const EstimatorOptions& options_;
  Objective& objective_;
  TableReader reader_;
  std::unique_ptr<torch::optim::Optimizer> inner_;
  DistributedOptimizer optimizer_;
  LearningRate rate_;

  std::int64_t step_ = 0, epoch_ = 0;  // Steps and epochs that are done.
  // Batches of each rank in this epoch: all, those that are done, and those of them before the
  // reader was started.
  std::int64_t passes_ = 0, passes_done_ = 0, passes_before_ = 0;
  RowRanges done_;                                              // Read before the reader was started.
  std::int64_t epoch_steps_ = 0;                                // Optimizer steps of a whole epoch.
  std::int64_t schedule_offset_ = 0;                            // From steps done to steps of the schedule.
  torch::Tensor loss_sum_ = torch::zeros({}, torch::kFloat64);  // Over the steps of this epoch.
  std::int64_t loss_steps_ = 0;
  std::optional<Scores> scores_;      // On the training rows.
  torch::Tensor resumed_scores_;      // On rank 0, of the part of the epoch before the checkpoint.
  bool stopping_ = false;             // Equal on all ranks.
  std::atomic<bool> failed_ = false;  // This rank has failed; the reason follows.
  std::exception_ptr error_;
};

struct FitProgress {
  std::int64_t step = 0, epoch = 0;  // Optimizer steps and epochs that are done.
  std::int64_t passes = 0;           // Batches that each rank has taken in this epoch.
  RowRanges done{};                  // Rows of the epoch's order that have been read.
  double loss = 0;                   // Mean over the steps of this epoch.
  std::int64_t steps = 0;            // In this epoch.

  // Throws: CorruptInput if the snapshot has no position.
  static FitProgress from(const Snapshot& snapshot);
  // Adds what position_of() does not read.
  void add_to(SnapshotBuilder& snapshot) const;
  // For a broadcast.
  std::string to_json() const;
  static FitProgress from_json(const std::string& text);
};

// The sums of the metrics on the training rows (Scores::sums).
void add_scores(SnapshotBuilder& snapshot, const torch::Tensor& sums);
// Returns an undefined tensor if the checkpoint has none.
torch::Tensor scores_in(const Snapshot& snapshot);

struct FitRows {
  RowSelection training;
  std::optional<RowSelection> validation;
};

// Throws: UserError if the column of the options cannot choose the rows.
FitRows split_rows(const DataTable& table, const EstimatorOptions& options);

// Throws: UserError and CorruptInput if model, loss, table and options do not fit together, as far as the
// first rows can tell.
void check_objective(Objective& objective, const DataTable& table, const EstimatorOptions& options,
                     int ranks);

// What a fit measures in each epoch.
ScoreOptions score_options(const Objective& objective, const EstimatorOptions& options);

}  // namespace farandole

// The training of a model file on the rows of a table, and its state in checkpoints.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <torch/types.h>
#include <vector>

#include "farandole/checkpoint/snapshot.h"
#include "farandole/estimator/model_with_losses.h"
#include "farandole/estimator/scores.h"
#include "farandole/estimator/store.h"
#include "farandole/tables/table_reader.h"
#include "farandole/train/session.h"
#include "farandole/trainer/objective.h"

namespace farandole {

struct FitRows {
  RowSelection training;
  std::optional<RowSelection> validation;
};

// Throws: UserError if the column of the options cannot choose the rows.
FitRows split_rows(const DataTable& table, const EstimatorOptions& options);

// Throws: UserError and CorruptInput if model, loss, table and options do not fit together, as far as the
// first rows can tell.
void check_fit(ModelWithLosses& model, const DataTable& table, const EstimatorOptions& options, int ranks);

// Where a fit is within its epoch, as its checkpoints have it. It does not depend on the number of ranks or
// the batch size.
struct FitProgress {
  std::int64_t passes = 0;  // Batches that each rank has taken in this epoch.
  RowRanges done{};         // Rows of the epoch's order that have been read.
  double loss = 0;          // Mean over the steps of this epoch.
  std::int64_t steps = 0;   // In this epoch.

  // A checkpoint of an earlier version has none of it: the epoch begins anew.
  static FitProgress from(const Snapshot& snapshot);
  void add_to(SnapshotBuilder& snapshot) const;
  // For a broadcast.
  std::string to_json() const;
  static FitProgress from_json(const std::string& text);
};

class TableTraining final : public TrainingData, public Objective {
 public:
  // Keeps the history of the epochs in `record`, on rank 0 also in its folder. The arguments must
  // outlive this object.
  TableTraining(Session& session, const EstimatorOptions& options, const DataTable& table, FitRows rows,
                ModelWithLosses& model, FitRecord& record);

  std::int64_t validation_rows() const { return validation_ ? validation_->selected_rows() : 0; }

  void begin_epoch(std::int64_t epoch) override;
  Passes passes() const override;
  bool load(std::int64_t pass, std::int64_t passes, const Guard& guard) override;
  std::int64_t save(SnapshotBuilder& snapshot) override;
  void restore(const Position& position, const Snapshot* snapshot) override;

  torch::nn::Module& module() override { return model_.model().module(); }
  // The history has no epochs after this position. Returns false if the patience has ended the training.
  bool begin(const Position& position) override;
  torch::Tensor loss(std::int64_t pass) override;
  void add_loss(const torch::Tensor& loss) override;
  // Throws: Error on all ranks if the loss is not finite.
  std::optional<Result> end_epoch(const Epoch& epoch, RunLog* log,
                                  const std::function<bool()>& must_stop) override;
  // Publishes the model of the last epoch, or of the best one.
  void finish(RunLog& log) override;

 private:
  struct Loaded {
    Rows rows;
    // The gradient is that of the rows' mean loss, times this weight. The ranks' average is therefore the
    // mean over all rows.
    double weight = 1;
    bool scored = false;  // Its training metrics are in the sums.
  };
  // Batches of each rank in this epoch, of which so many are done, after the reader was started.
  std::int64_t passes_after(std::int64_t done) const;
  SampleOrder order() const { return {reader_.selected_rows(), reader_.order_hash(), options_.seed}; }
  ScoreOptions score_options() const;
  double mean_loss();
  void report_skipped();
  std::optional<Evaluation> validate(const std::function<bool()>& must_stop);
  void record_epoch(const EpochResult& result, RunLog& log);
  bool on_rank_0(bool value);
  void take_best();

  Session& session_;
  const EstimatorOptions& options_;
  ModelWithLosses& model_;
  FitRecord& record_;
  TableReader reader_;
  const std::int64_t whole_;  // Batches of each rank in an epoch.
  std::optional<TableReader> validation_;

  // The batches of this rank for one step, by the number of their pass. A rank that has no rows left has
  // none, and contributes zeros to the gradients.
  std::vector<std::optional<Loaded>> loaded_;
  bool has_rows_ = false;  // Any rank, in this step.
  // Batches of each rank in this epoch: all, those that were loaded, and those of them before the
  // reader was started.
  std::int64_t passes_ = 0, passes_done_ = 0, passes_before_ = 0;
  torch::Tensor loss_sum_;  // Over the steps of this epoch.
  std::int64_t loss_steps_ = 0;
  std::optional<Scores> scores_;  // On the training rows.
  bool has_reported_skipped_ = false, has_warned_of_loss_ = false;
  std::optional<FitProgress> resumed_;  // For the next epoch that begins.
  torch::Tensor resumed_scores_;        // On rank 0, of the part of the epoch before the checkpoint.
};

}  // namespace farandole

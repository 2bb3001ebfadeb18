// The training loop of `farandole train`. Every rank has one.
// Thread safety: call from the training thread only.
#pragma once

#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "farandole/base/error.h"
#include "farandole/checkpoint/checkpoint_store.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/distributed_sampler.h"
#include "farandole/train/learning_rate.h"
#include "farandole/train/precision.h"
#include "farandole/train/run/device_copies.h"
#include "farandole/train/run/metrics_log.h"
#include "farandole/train/run/resource_usage.h"
#include "farandole/train/run/training_state.h"
#include "farandole/train/session.h"
#include "farandole/trainer/checkpoint_schedule.h"
#include "farandole/trainer/data/batch_sequence.h"
#include "farandole/trainer/data/dataset.h"
#include "farandole/trainer/models/model.h"
#include "farandole/trainer/progress.h"
#include "farandole/trainer/train_options.h"

namespace farandole {

// The optimizer steps that a run of `ranks` ranks on `samples` samples has still to do at `position`.
std::int64_t remaining_steps(const TrainOptions& options, const Position& position, std::int64_t samples,
                             int ranks);

class Trainer {
 public:
  // `session`, `options` and `data` must outlive this object. `stop_requested` is called in each step and
  // evaluation, possibly on another thread.
  // Collective: every rank of the group must call this in the same order.
  Trainer(Session& session, const TrainOptions& options, const DataSplit& data, std::shared_ptr<Model> model,
          std::function<bool()> stop_requested);

  // Continues from `position`, with the state of a snapshot. Rank 0 passes the snapshot, the
  // others pass nullptr.
  // Collective: every rank of the group must call this in the same order.
  void resume(const Position& position, Snapshot* snapshot);
  // Trains, evaluates and saves checkpoints until the end. If any rank must stop, all ranks save and return
  // ExitCode::preempted at the end of the current or the next step,
  // or one step later if they average parameters.
  // Throws: Error on all ranks if the last checkpoint could not be written.
  // Collective: every rank of the group must call this in the same order.
  ExitCode run();

  // Returns a table of what each rank has used.
  // Collective: every rank of the group must call this in the same order.
  std::string describe_resources() { return resource_table(meter_.gather(), session_.hosts()); }
  std::int64_t total_steps() const { return total_steps_; }
  const Position& position() const { return position_; }
  std::int64_t global_batch() const { return options_.batch * options_.accumulate * session_.size(); }

 private:
  void start_at(const Position& position);
  void train_epoch();
  void step(BatchSequence& batches);
  std::optional<double> evaluate();  // std::nullopt if the job stops before its end.
  void save_if_due(double score);
  void save(double score);           // Waits until the last checkpoint has been written.
  void take_snapshot(double score);  // The last checkpoint has been written.
  void confirm();
  // What --on-nonfinite says. `loss` is this rank's in the present step.
  void handle_nonfinite(const NonFiniteGradient& gradient, const torch::Tensor& loss);
  void tell_skipped(const std::string& reason);
  std::string explain(const NonFiniteGradient& gradient, const torch::Tensor& loss);
  void roll_back(const std::string& reason);
  std::vector<int> ranks_where(bool here);  // Collective, unless ranks average parameters.
  bool averages_parameters() const { return parse_synchronization(options_.synchronize).of_parameters(); }
  void report();
  void show_sample();
  bool due(std::int64_t every, std::int64_t count) const { return every > 0 && count % every == 0; }
  bool finished() const { return position_.step >= total_steps_; }
  double rate_of(std::int64_t step) const { return rate_.at(step + schedule_offset_); }
  bool leads() const { return session_.rank() == 0; }

  Session& session_;
  const TrainOptions& options_;
  const Precision precision_;
  const DataSplit& data_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<torch::optim::Optimizer> inner_;
  DistributedOptimizer optimizer_;
  std::function<bool()> stop_requested_;
  bool stopping_ = false;  // Equal on all ranks.
  DistributedSampler sampler_;
  DeviceInput input_;
  LearningRate rate_;

  Position position_;
  std::int64_t total_steps_ = 0;
  // The schedule counts the steps that this run would have needed with the present number of ranks
  // and batch size.
  std::int64_t schedule_offset_ = 0;
  std::int64_t saved_step_ = -1;
  std::int64_t ask_at_ = 0;  // The step at which rank 0 decides again whether a checkpoint is saved.
  // Since the last line of metrics.
  torch::Tensor loss_sum_;
  std::int64_t loss_steps_ = 0;  // Steps in the sum: those that were not skipped.
  std::int64_t steps_ = 0;
  int skipped_in_a_row_ = 0;
  int rollbacks_in_a_row_ = 0;  // To the same checkpoint.
  std::int64_t rolled_back_to_ = -1;
  ResourceMeter meter_;
  double last_loss_ = std::numeric_limits<double>::quiet_NaN();

  // On rank 0 only.
  double best_score_ = score_unknown;
  std::int64_t best_step_ = 0;
  std::optional<DeviceCopies> copies_;  // If the parameters are on a GPU.
  std::unique_ptr<CheckpointStore> store_;
  std::unique_ptr<CheckpointSchedule> schedule_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<Progress> progress_;
  std::int64_t reported_ns_ = 0;  // Time of the last line of metrics.
  double samples_per_s_ = 0;      // Between the last two lines of metrics.
  bool tuning_kept_ = false;
};

// Writes RUN/tuned-N-ranks.ini and returns a line that describes the result.
// Throws: Error if the file cannot be written.
std::string keep_tuned_plan(const std::filesystem::path& run_dir, int ranks, const TunedPlan& plan);

// If an earlier run with the same number of ranks has stored its plan, this call uses that plan.
// Throws: UserError if the file does not have the format of keep_tuned_plan().
void take_tuned_plan(TrainOptions& options, int ranks);

}  // namespace farandole

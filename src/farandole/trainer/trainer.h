// The training loop of `farandole train` and `farandole fit`: optimizer steps within epochs, reports,
// checkpoints, and the end of a run. Every rank has one.
// Thread safety: call from the training thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/optim/optimizer.h>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/job/run/run_directory.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/learning_rate.h"
#include "farandole/train/precision.h"
#include "farandole/train/run/run_state.h"
#include "farandole/train/session.h"
#include "farandole/trainer/loop_options.h"
#include "farandole/trainer/objective.h"

namespace farandole {

class Trainer {
 public:
  // The arguments must outlive this object. `config` are the options as JSON, for checkpoints.
  // `stop_requested` is called in each step and evaluation, possibly on another thread.
  // Collective: every rank of the job must call this in the same order.
  Trainer(Session& session, const LoopOptions& options, std::string config, TrainingData& data,
          Objective& objective, std::function<bool()> stop_requested);

  // Continues from `position`, with the state of a snapshot. Rank 0 passes the snapshot, the
  // others pass nullptr.
  // Throws: UserError on all ranks if model or samples differ from those of the snapshot.
  // Collective: every rank of the job must call this in the same order.
  void resume(const Position& position, Snapshot* snapshot);
  // Trains, evaluates and saves checkpoints until the end. If any rank must stop, all ranks save and return
  // ExitCode::preempted at the end of the current or the next step,
  // or one step later if they average parameters.
  // Throws: Error on all ranks if the last checkpoint could not be written, or for samples, losses or
  // gradients that cannot be trained on.
  // Collective: every rank of the job must call this in the same order.
  ExitCode run();

  // Returns a table of what each rank has used.
  // Collective: every rank of the job must call this in the same order.
  std::string describe_resources() { return run_.resources(); }
  std::string describe_rate() const { return run_.describe_rate(); }  // As RunState::describe_rate().
  // What run.json says of this run; only the name of the program is missing.
  RunFacts facts() const;
  // As RunState::started().
  void started(RunDirectory& directory, RunFacts facts) { run_.started(directory, std::move(facts)); }
  std::int64_t total_steps() const { return total_steps_; }
  std::int64_t steps_done() const { return run_.position.step; }
  std::int64_t global_batch() const { return options_.batch * options_.accumulate * session_.size(); }

 private:
  void begin();
  std::int64_t steps_in(std::int64_t passes) const;
  void schedule_rates();
  void train_epoch();
  void step();
  torch::Tensor add_gradients(std::int64_t passes, bool again);
  bool end_epoch();  // False if the job stops before its end.
  void guard(const std::function<void()>& work);
  void rethrow_error();
  bool must_stop();  // During an evaluation.
  void settle();     // Before a snapshot.
  // What --on-nonfinite says. `loss` is this rank's in the present step.
  void handle_nonfinite(const NonFiniteGradient& gradient, const torch::Tensor& loss);
  void tell_skipped(const std::string& reason);
  std::string explain(const NonFiniteGradient& gradient, const torch::Tensor& loss);
  void roll_back(const std::string& reason);
  std::vector<int> ranks_where(bool here);  // Collective, unless ranks average parameters.
  void report();
  void keep_tuning();
  bool averages_parameters() const { return parse_synchronization(options_.synchronize).of_parameters(); }
  bool due(std::int64_t every, std::int64_t count) const { return every > 0 && count % every == 0; }
  bool all_steps_done() const { return run_.position.step >= total_steps_; }
  bool limit_reached() const { return options_.steps > 0 && run_.position.step >= options_.steps; }
  bool finished() const { return ended_ || run_.position.epoch >= options_.epochs; }
  double rate_of(std::int64_t step) const { return rate_.at(step + schedule_offset_); }
  bool leads() const { return session_.rank() == 0; }

  Session& session_;
  const LoopOptions& options_;
  const Precision precision_;
  TrainingData& data_;
  Objective& objective_;
  torch::nn::Module& module_;
  std::function<bool()> stop_requested_;
  std::atomic<bool> failed_ = false;  // This rank has failed; the reason follows.
  std::exception_ptr error_;
  std::unique_ptr<torch::optim::Optimizer> inner_;
  DistributedOptimizer optimizer_;
  LearningRate rate_;

  TrackedState tracked_;
  RunState run_;
  std::int64_t total_steps_ = 0;
  // The schedule counts the steps that this run would have needed with the present number of ranks
  // and batch size.
  std::int64_t schedule_offset_ = 0;
  // Equal on all ranks.
  bool stopping_ = false, ended_ = false;
  bool has_samples_ = false;  // Any rank, in the present step.
  torch::Tensor loss_;        // The sum of this rank's passes in the last step.
  int skipped_in_a_row_ = 0;
  int rollbacks_in_a_row_ = 0;  // To the same checkpoint.
  std::int64_t rolled_back_to_ = -1;
  std::int64_t epoch_began_ns_ = 0;

  // On rank 0 only.
  std::optional<RunLog> log_;
  bool tuning_kept_ = false;
};

// Whether a run that is at `position` has nothing left to train.
bool is_at_end(const LoopOptions& options, const Position& position);

// Runs the training, and records how it ended. Then it publishes the timeline and, if `prints`, prints what
// each rank has used and where a stopped run continues. Only rank 0 has a run directory.
// Collective: every rank of the job must call this in the same order.
ExitCode run_to_end(Session& session, Trainer& trainer, std::optional<RunDirectory>& run, bool prints);

// Where the result of --bucket-mb auto is kept for this number of ranks.
std::filesystem::path tuned_profile(const std::filesystem::path& run_dir, int ranks);

}  // namespace farandole

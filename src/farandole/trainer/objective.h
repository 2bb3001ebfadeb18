// What a Trainer trains, and on which samples: a built-in model with its loss, or a model file with its loss.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "farandole/checkpoint/snapshot.h"
#include "farandole/job/run/metrics_log.h"
#include "farandole/train/run/training_state.h"
#include "farandole/trainer/progress.h"

namespace farandole {

// Where a run reports. On rank 0.
struct RunLog {
  MetricsLog& metrics;
  Progress progress;
};

// The batches of a training, and how far it is in an epoch. A pass is a batch of each rank.
// Collective: every rank of the job must call all functions but passes() and load_ahead() in the same order.
class TrainingData {
 public:
  virtual ~TrainingData() = default;

  // Begins an epoch, or continues the one whose position restore() has read.
  // Throws: CorruptInput if this position cannot be.
  virtual void begin_epoch(std::int64_t epoch) = 0;
  struct Passes {
    std::int64_t whole = 0;  // in a whole epoch
    std::int64_t left = 0;   // in this one
  };
  virtual Passes passes() const = 0;
  // Loads pass number `pass` of a step of `passes` passes. An error of this rank's data must not be thrown
  // outside of `guard`, which keeps it until all ranks know it. Returns false if no rank has a sample.
  using Guard = std::function<void(const std::function<void()>&)>;
  virtual bool load(std::int64_t pass, std::int64_t passes, const Guard& guard) = 0;
  // The next pass may be loaded now, while a GPU computes.
  virtual void load_ahead() {}

  // Adds what restore() needs besides the position, on rank 0. Returns the samples of this epoch that all
  // ranks together have seen, for the position.
  virtual std::int64_t save(SnapshotBuilder& snapshot) = 0;
  // Continues at a position. Rank 0 passes the snapshot, the others pass nullptr.
  // Throws: UserError on all ranks if the samples have another order there.
  virtual void restore(const Position& position, const Snapshot* snapshot) = 0;
};

// A model with its loss, and what an epoch reports.
// Collective: every rank of the job must call begin(), end_epoch() and loss() in the same order.
class Objective {
 public:
  virtual ~Objective() = default;

  virtual torch::nn::Module& module() = 0;
  // Called before the first step of a start. Returns false if nothing is left to train.
  virtual bool begin(const Position& position) = 0;
  // Forward of the pass that was loaded last, or of pass number `pass` of the step again. Returns this rank's
  // loss, weighted so that the ranks' average over a step counts all samples equally; undefined if the rank
  // has no samples.
  // Throws: Error for samples that cannot be trained on.
  virtual torch::Tensor loss(std::int64_t pass) = 0;
  // A step has changed the model. `loss` is this rank's, the sum over its passes.
  virtual void add_loss(const torch::Tensor& loss) = 0;

  struct Epoch {
    std::int64_t number = 0;  // 1, 2, …
    std::int64_t step = 0;
    double lr = 0;  // of the last step
    double seconds = 0;
  };
  struct Result {
    double score = score_unknown;  // lower is better
    bool ends_training = false;
  };
  // Evaluates and reports an epoch. `log` is null but on rank 0. An evaluation may last longer than a job
  // that is to stop: `must_stop` returns true on all ranks if it must be given up. Then this returns
  // std::nullopt, and another start calls it again.
  virtual std::optional<Result> end_epoch(const Epoch& epoch, RunLog* log,
                                          const std::function<bool()>& must_stop) = 0;
  // The training has ended. Called on rank 0.
  virtual void finish(RunLog& log) = 0;
};

}  // namespace farandole

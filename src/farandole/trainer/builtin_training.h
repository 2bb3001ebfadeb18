// The training of a built-in model on a data set in memory.
// Thread safety: call from the training thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "farandole/train/distributed_sampler.h"
#include "farandole/train/precision.h"
#include "farandole/train/session.h"
#include "farandole/trainer/data/batch_sequence.h"
#include "farandole/trainer/data/dataset.h"
#include "farandole/trainer/models/model.h"
#include "farandole/trainer/objective.h"
#include "farandole/trainer/train_options.h"

namespace farandole {

class BuiltInTraining final : public TrainingData, public Objective {
 public:
  // The arguments must outlive this object.
  BuiltInTraining(Session& session, const TrainOptions& options, const DataSplit& data,
                  std::shared_ptr<Model> model);

  void begin_epoch(std::int64_t epoch) override;
  Passes passes() const override;
  bool load(std::int64_t pass, std::int64_t passes, const Guard& guard) override;
  void load_ahead() override;
  std::int64_t save(SnapshotBuilder& snapshot) override;
  // The caller has checked the order of the samples (check_order).
  void restore(const Position& position, const Snapshot*) override;

  torch::nn::Module& module() override { return *model_; }
  bool begin(const Position&) override { return true; }
  torch::Tensor loss(std::int64_t pass) override;
  void add_loss(const torch::Tensor&) override {}
  // Evaluates every held-out sample once, on any number of ranks.
  std::optional<Result> end_epoch(const Epoch& epoch, RunLog* log,
                                  const std::function<bool()>& must_stop) override;
  void finish(RunLog& log) override;

 private:
  std::optional<Score> evaluate(const std::function<bool()>& must_stop);

  Session& session_;
  const TrainOptions& options_;
  const Precision precision_;
  const DataSplit& data_;
  std::shared_ptr<Model> model_;
  DistributedSampler sampler_;
  DeviceInput input_;
  std::optional<BatchSequence> batches_;
  std::int64_t resumed_samples_ = 0, passes_of_step_ = 1;
};

}  // namespace farandole

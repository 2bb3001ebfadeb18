// A model, its optimizer and a batch of random data for benchmarks. It trains in the
// same way as Trainer::step.
// Thread safety: call from the training thread only.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "farandole/bench/measurement.h"
#include "farandole/checkpoint/snapshot.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/run.h"
#include "farandole/train/session.h"
#include "farandole/trainer/data/dataset.h"
#include "farandole/trainer/models/model.h"

namespace farandole {

class BenchmarkTrainee {
 public:
  // Models: "mlp" is 4 × 2048, batch 32, SGD with momentum; "gpt" is 6 layers, width 384, 128 bytes, batch 4,
  // AdamW; "mnist" is batch 64, SGD with momentum; "small-mlp" is 4 × 1024, batch 32; "small-gpt" is 4
  // layers, width 256, 64 bytes, batch 4. Each step uses the same batch. `session` must outlive this object.
  // If `wait_for_data` is set, each step calls it in "data".
  // Throws: UserError if there is no model `model`.
  // Collective: every rank of the group must call this in the same order.
  // `optimizer`: its name for make_optimizer(), instead of the model's own.
  BenchmarkTrainee(Session& session, const std::string& model, const DistributedOptimizerOptions& options,
                   std::function<void()> wait_for_data = {}, const std::string& optimizer = {});

  // Throws: UserError if there is no model `model`.
  static void check(const std::string& model);

  // Runs steps with the spans of a training run. If `sample` is set, it receives the time of each step; on a
  // GPU, of which the host is a step ahead, the mean of all of them. `forward_backward` receives the time
  // from the begin of each step to the end of backward; on a GPU, nothing.
  // Collective: every rank of the group must call this in the same order.
  void steps(int count, Sample* sample = nullptr, Sample* forward_backward = nullptr);

  // Copies the state as a training run does for a checkpoint.
  // Collective: every rank of the group must call this in the same order.
  void capture(SnapshotBuilder& snapshot);
  // Reads a checkpoint as rank 0 of a training run does at its start.
  void restore(const std::filesystem::path& checkpoint);

  void track(Run& run) { run.track(*model_, *inner_); }

  std::size_t gradient_bytes() const { return optimizer_.gradient_bytes(); }
  Sharding sharding() const { return optimizer_.sharding(); }
  std::size_t packed_bytes_a_step() const { return optimizer_.packed_bytes() / steps_; }

 private:
  struct Workload;
  static Workload workload(const std::string& name);
  static Workload with(Workload workload, const std::string& optimizer);
  BenchmarkTrainee(Session& session, const Workload& workload, const DistributedOptimizerOptions& options,
                   std::function<void()> wait_for_data);
  std::int64_t step();  // Returns when backward ended.

  Session& session_;
  Timeline& timeline_;
  std::function<void()> wait_for_data_;
  Batch batch_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<torch::optim::Optimizer> inner_;
  DistributedOptimizer optimizer_;
  std::size_t steps_ = 0;
};

}  // namespace farandole

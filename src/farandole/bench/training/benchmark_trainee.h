// A model, its optimizer and a batch of random data, trained as Trainer::step does: what benchmarks time.
// Used by the main thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "farandole/bench/sample.h"
#include "farandole/train/distributed_optimizer.h"
#include "farandole/train/session.h"
#include "farandole/trainer/data/dataset.h"
#include "farandole/trainer/models/model.h"

namespace farandole {

class BenchmarkTrainee {
 public:
  // "mlp": 4 × 2048, batch 32, SGD with momentum; "gpt": 6 layers, 384 wide, 128 bytes, batch 4, AdamW;
  // "mnist": batch 64, SGD with momentum; "small-mlp": 4 × 1024; "small-gpt": 4 layers, 256 wide, 64 bytes.
  // The same batch at each step. Collective; throws UserError for another name. `session` outlives this.
  // `wait_for_data`, where there is one, is called in each step's "data".
  BenchmarkTrainee(Session& session, const std::string& model, const DistributedOptimizerOptions& options,
                   std::function<void()> wait_for_data = {});

  // With the spans of a training run. Collective; gives `sample`, where there is one, each step's time.
  void steps(int count, Sample* sample = nullptr);

  std::int64_t batch_samples() const { return batch_.x.size(0); }
  std::size_t gradient_bytes() const { return optimizer_.gradient_bytes(); }
  std::size_t packed_bytes_a_step() const { return optimizer_.packed_bytes() / steps_; }

 private:
  struct Workload;
  static Workload workload(const std::string& name);
  BenchmarkTrainee(Session& session, const Workload& workload, const DistributedOptimizerOptions& options,
                   std::function<void()> wait_for_data);
  void step();

  Timeline& timeline_;
  std::function<void()> wait_for_data_;
  Batch batch_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<torch::optim::Optimizer> inner_;
  DistributedOptimizer optimizer_;
  std::size_t steps_ = 0;
};

}  // namespace farandole

// What the tests of layers share that compute their gradients in buckets.
#pragma once

#include <torch/utils.h>
#include <vector>

#include "train/mpi_session.h"

namespace farandole {

inline torch::Tensor random(const std::vector<std::int64_t>& shape, int seed) {
  torch::manual_seed(seed);
  return torch::randn(shape, torch::kFloat64);
}

inline void step_of(DistributedOptimizer& optimizer, const torch::Tensor& loss) {
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
}

}  // namespace farandole

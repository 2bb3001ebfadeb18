// The session that the tests of a test program share, because MPI can be started only once, and what most of
// them do with it.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <torch/utils.h>
#include <vector>

#include "farandole/farandole.h"

namespace farandole {

extern Session* session;

inline torch::Tensor random(const std::vector<std::int64_t>& shape, int seed) {
  torch::manual_seed(seed);
  return torch::randn(shape, torch::kFloat64);
}

// The forward pass comes after zero_grad(), as in most programs.
template <class Optimizer, class Loss>
void train_step(Optimizer& optimizer, Loss loss) {
  optimizer.zero_grad();
  loss().backward();
  optimizer.step();
}

// The forward pass comes before zero_grad().
inline void step_of(DistributedOptimizer& optimizer, const torch::Tensor& loss) {
  train_step(optimizer, [&] { return loss; });
}

using Parameters = torch::OrderedDict<std::string, torch::Tensor>;

// Bit by bit unless tolerances are given.
inline void expect_same(const Parameters& a, const Parameters& b, double relative = 0, double absolute = 0) {
  for (const auto& item : a)
    EXPECT_TRUE(torch::allclose(item.value(), b[item.key()], relative, absolute)) << item.key();
}

inline void expect_equal_on_all_ranks(const Parameters& parameters) {
  for (const auto& item : parameters) {
    auto of_root = item.value().detach().clone();
    session->broadcast_(of_root);
    EXPECT_TRUE(torch::equal(of_root, item.value())) << item.key();
  }
}

}  // namespace farandole

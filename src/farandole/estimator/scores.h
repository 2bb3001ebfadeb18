// What an evaluation measures, as sums that are added over batches and ranks.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <torch/types.h>
#include <vector>

#include "farandole/estimator/estimator.h"

namespace farandole {

class Scores {
 public:
  explicit Scores(bool classes) : classes_(classes) {}
  // `loss` is the sum over the rows. Outputs are logits, log-probabilities or values; labels are as the loss has them.
  void add(const torch::Tensor& output, const torch::Tensor& label, double loss);
  // Collective: every rank of the job must call this in the same order.
  Evaluation reduce(Session& session);

 private:
  bool classes_;
  torch::Tensor sums_ = torch::zeros({8}, torch::kFloat64);
  torch::Tensor confusion_;
};

}  // namespace farandole

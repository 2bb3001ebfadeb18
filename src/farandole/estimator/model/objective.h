// A model with its losses and the columns that both need.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <string>
#include <torch/types.h>
#include <vector>

#include "farandole/estimator/model/loss.h"
#include "farandole/estimator/model/rows.h"
#include "farandole/estimator/model/script_model.h"

namespace farandole {

class Objective {
 public:
  // Throws: UserError and CorruptInput if a file, a column or the number of losses is wrong.
  Objective(const std::filesystem::path& model, const DataTable& table, const EstimatorOptions& options);

  struct Losses {
    torch::Tensor sum;  // Over the rows and the labels, each with its weight.
    std::vector<torch::Tensor> outputs, labels;
  };
  // Throws: UserError if the shapes of outputs and labels do not fit; CorruptInput that names the row of a
  // label which is no class.
  Losses of(const Rows& rows);

  ScriptModel& model() { return model_; }
  const RowTensors& tensors() const { return tensors_; }
  std::vector<bool> classifies() const;  // For each label.

 private:
  const EstimatorOptions& options_;
  ScriptModel model_;
  std::vector<LossFunction> losses_;  // For each label.
  RowTensors tensors_;
};

}  // namespace farandole

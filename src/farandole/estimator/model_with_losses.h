// A model with its losses and the columns that both need.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/types.h>
#include <vector>

#include "farandole/estimator/models/model.h"
#include "farandole/estimator/rows.h"
#include "farandole/tables/class_columns.h"

namespace farandole {

// A loss by name or as a function in a file.
class LossFunction {
 public:
  // `name` is nll, cross_entropy, mse, l1, smooth_l1, huber, bce, bce_with_logits or a file of TorchScript or
  // torch.export, whose forward(output, label) returns the mean or one value for each row.
  // `what` is its role in messages.
  // Throws: UserError for another name; CorruptInput if the file cannot be loaded.
  explicit LossFunction(const std::string& name, const char* what = "loss",
                        torch::Device device = torch::kCPU);

  // Whether labels are classes, and outputs have a value for each class along dimension 1.
  bool classifies() const { return name_ == "nll" || name_ == "cross_entropy"; }
  bool compares_numbers() const;  // A class has no number to compare.
  // Returns the loss of each row, or a scalar for a function that returns the mean.
  // Throws: UserError if the shapes of outputs and labels differ.
  torch::Tensor of_rows(const torch::Tensor& output, const torch::Tensor& label);
  // Returns the mean over the rows, bit for bit that of PyTorch's function. Throws as of_rows().
  torch::Tensor mean(const torch::Tensor& output, const torch::Tensor& label);
  // The labels as this loss wants them: int64 for classes, otherwise float32 in the shape of the outputs.
  torch::Tensor labels(const torch::Tensor& raw, const torch::Tensor& output) const;
  const std::string& name() const { return name_; }

 private:
  torch::Tensor values(const torch::Tensor& output, const torch::Tensor& label, std::int64_t reduction);

  std::string name_;
  LabelFunction function_;
};

class ModelWithLosses {
 public:
  // `classes` of the labels that are texts in the table.
  // Throws: UserError and CorruptInput if a file of a loss, a column or the number of losses is wrong, or if
  // a loss does not work on classes.
  ModelWithLosses(std::unique_ptr<ModelProgram> model, const DataTable& table, const ColumnOptions& options,
                  torch::Device device = torch::kCPU, ClassNames classes = {});

  struct Losses {
    torch::Tensor mean;  // Over the rows. The labels' are added. Rows and labels have their weights.
    std::vector<torch::Tensor> outputs, labels;
  };
  // Throws: UserError if the shapes of outputs and labels do not fit; CorruptInput that names the row of a
  // label which is no class.
  Losses of(const Rows& rows);

  // As RowTensors::take(), on the device of the model.
  Rows take(TableBatch batch);
  ModelProgram& model() { return *model_; }
  RowTensors& tensors() { return tensors_; }
  std::vector<bool> classifies() const;  // For each label.

 private:
  void check_classes(const torch::Tensor& output, std::size_t label) const;

  const ColumnOptions& options_;
  const torch::Device device_;
  const ClassNames classes_;
  const std::unique_ptr<ModelProgram> model_;
  std::vector<LossFunction> losses_;  // For each label.
  RowTensors tensors_;
};

}  // namespace farandole

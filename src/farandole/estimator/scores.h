// What an evaluation measures, as sums that are added over batches and ranks.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <torch/types.h>
#include <vector>

#include "farandole/estimator/estimator.h"
#include "farandole/estimator/model_with_losses.h"

namespace farandole {

struct ScoreOptions {
  std::vector<std::string> labels;
  std::vector<bool> classes;  // For each label.
  std::vector<std::string>
      metrics;  // As EstimatorOptions::metrics; empty: accuracy, top_5, log_loss, mae, rmse, r2.
  std::map<std::string, MetricFunction> functions{};
  bool all = false;  // All metrics, and the confusion.
};

class Scores {
 public:
  // Throws: UserError that lists the metrics, if there is none with a name; as LossFunction for scripts.
  explicit Scores(const ScoreOptions& options);
  // `losses` has outputs that are logits, log-probabilities or values, and labels as the losses have them.
  void add(const ModelWithLosses::Losses& losses, const Rows& rows);
  // Adds what the model does on the next `batches` batches of the reader; 0: on all of them.
  void add(ModelWithLosses& model, TableReader& reader, std::int64_t batches = 0);
  // Collective: every rank of the job must call these in the same order.
  Evaluation reduce(Session& session);
  torch::Tensor sums(Session& session) const;  // Of all ranks, for restore(): float64, one dimension.

  // Adds sums of an object with the same options. Others are left out.
  void restore(const torch::Tensor& sums);

 private:
  // Sums over the rows of one label.
  struct Sums {
    torch::Tensor values = torch::zeros({4}, torch::kFloat64);
    torch::Tensor custom;  // [functions]
    // Of classes: rows of each class, rows predicted as it, and those in common. Of values: for each number
    // of a row, the label, its square, and the square of the error.
    torch::Tensor columns;    // [3, classes or numbers in a row]
    torch::Tensor confusion;  // [classes, classes]
  };
  bool wants(const std::string& name) const;
  void add_classes(Sums& sums, const torch::Tensor& output, const torch::Tensor& label) const;
  void add_values(Sums& sums, const torch::Tensor& output, const torch::Tensor& label) const;
  void add_over_ranks(Session& session);
  void report_classes(const Sums& sums, const std::string& label, Evaluation& result) const;
  void report_values(const Sums& sums, const std::string& label, Evaluation& result) const;
  void report(Evaluation& result, const std::string& label, const std::string& metric, double value) const;

  ScoreOptions options_;
  // For each label, also those that are scripts. A function whose name begins with <label>__ is of
  // this label alone.
  std::vector<std::map<std::string, MetricFunction>> functions_;
  std::vector<Sums> sums_;                                     // For each label.
  torch::Tensor totals_ = torch::zeros({2}, torch::kFloat64);  // Rows, loss.
};

}  // namespace farandole

// Trains a model of torch.export or TorchScript on a table, and applies it to others:
// fit, transform, evaluate.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "farandole/train/session.h"
#include "farandole/trainer/loop_options.h"

namespace farandole {

// What one epoch did; a row of the history.
struct EpochResult {
  std::int64_t epoch = 0;  // 1, 2, …
  std::int64_t step = 0;   // Optimizer steps since the start.
  double loss = 0;         // Mean over the epoch's batches.
  double lr = 0;           // Learning rate of the last step.
  double seconds = 0;
  std::optional<double> validation_loss;
  std::map<std::string, double> metrics;  // On the validation rows.
  // On the training rows, measured during the training. Only those that EstimatorOptions::metrics names.
  std::map<std::string, double> training_metrics;
};

// Returns the value of each row, or the mean. Outputs and labels are as the loss has them.
using MetricFunction = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& label)>;

// Which columns of a table a model reads, and what it learns from them. A model is applied with those that it
// was trained with.
struct ColumnOptions {
  std::vector<std::string> losses = {"cross_entropy"};  // One for all labels, or one for each.
  std::vector<double> loss_weights{};                   // One for each label; empty: 1.
  // Columns; each is an input of the model, as float32 or, for NAME:int64, int64. "[a,b,c]" and
  // "[a,b,c]:int64" are one input: a vector of the numbers of these columns.
  std::vector<std::string> features;
  // Columns. For several, the model returns a tuple with a tensor for each. Texts are classes, sorted.
  std::vector<std::string> labels;
  // Shape of one row of each feature for the model; empty: as in the table.
  std::vector<std::vector<std::int64_t>> input_shapes{};
  std::string sample_weight{};  // A column; empty: all rows weigh 1.
  std::string nan = "error";    // What a NaN in a column does: error, skip (the row is left out), keep.
  // For programs: changes the inputs of each batch of the training and its validation.
  std::function<void(std::vector<torch::Tensor>& inputs)> transformation{};
};

struct EstimatorOptions : SharedLoopOptions, ColumnOptions {
  int num_proc = 1;                   // As LaunchOptions::np; has no effect inside a job.
  std::string model;                  // A file of torch.export or TorchScript.
  std::string eval_model{};           // torch.export's program for evaluation, if it is not in `model`.
  std::int64_t validation_batch = 0;  // Rows per rank and batch of a validation; 0: as batch.
  bool drop_last = false;             // Leaves out the rows of an epoch that fill no batch on every rank.
  std::int64_t train_steps = 0;       // Optimizer steps per epoch at most; 0: all rows.
  std::int64_t validation_steps = 0;  // Batches per rank and validation at most; 0: all rows.
  double validation = 0;              // Fraction of the rows, chosen at random, that is only validated on.
  std::string validation_column{};    // Or a column that is not 0 for these rows.
  bool shuffle = true;

  // accuracy, top_5, log_loss, precision, recall, f1, mae, rmse, r2, or NAME=FILE with a function of output
  // and label in TorchScript or of torch.export. They are measured in each epoch on the training rows and on
  // the validation rows.
  // Empty: only the validation rows are measured, without precision, recall and f1.
  std::vector<std::string> metrics{};

  std::int64_t patience = 0;  // Stops after so many epochs without a better loss; 0: never.
  bool keep_best = false;     // The result is the model of the best epoch, not of the last one.
  std::filesystem::path store = "runs";
  // Id of a run in the store. Empty: the unfinished run with these options, or else a new one.
  std::string run{};
  int verbose = 1;  // 0: no output; 1: a line for each epoch.

  // For programs: more metrics by name. They are measured wherever metrics are.
  std::map<std::string, MetricFunction> metric_functions{};
  // For programs: called on rank 0 after each epoch; ends the training if it returns false.
  std::function<bool(const EpochResult&)> on_epoch{};

  // Throws: UserError if an option has a wrong value; the message names the option.
  void check() const;
};

struct TransformOptions {
  int num_proc = 1;
  std::int64_t batch = 0;       // Rows per rank and forward pass; 0: as many as 16 MiB hold, and 256 at most.
  std::string device = "auto";  // As EstimatorOptions::device.
  bool argmax =
      false;  // Adds <label>__prediction: the class with the highest output, by its name if it has one.
  // More metrics for evaluate(), as EstimatorOptions::metrics and metric_functions.
  std::vector<std::string> metrics{};
  std::map<std::string, MetricFunction> metric_functions{};
};

struct Evaluation {
  std::int64_t rows = 0;
  double loss = 0;
  // For classes: accuracy, top_5 (if there are more than five), log_loss, precision, recall, f1. Otherwise:
  // mae, rmse, r2. With several labels, the names begin with <label>__.
  std::map<std::string, double> metrics;
  // By label, of those that are classes: [true class][predicted class].
  std::map<std::string, std::vector<std::vector<std::int64_t>>> confusion;
  std::map<std::string, std::vector<std::string>> classes{};  // By label: the names of those that are texts.
  // Rows that were left out because of a NaN (EstimatorOptions::nan), and the column with
  // most of them.
  std::int64_t skipped = 0;
  std::string skipped_column{};
};

// A run of the store whose training has ended.
class TrainedModel {
 public:
  // Throws: UserError if the store has no such run or its training has not ended. An empty id means the run
  // that ended last.
  explicit TrainedModel(const std::filesystem::path& store, const std::string& run = "");

  const std::string& run() const { return run_; }
  std::filesystem::path folder() const { return folder_; }
  // model.pt2 of torch.export or model.pt of TorchScript, as it was given.
  std::filesystem::path model() const;
  std::filesystem::path state() const {
    return folder_ / "state.h5";
  }  // A data set for each name of the state dict.
  const std::vector<EpochResult>& history() const { return history_; }

  // Both calls start the ranks as launch() does, from one thread at a time.
  // Throws: Error with the message of the rank that failed first, also if model and table do
  // not fit together.
  //
  // Writes all columns of the table and <label>__output to an .h5 or .csv file. Returns the number of rows.
  std::int64_t transform(const std::string& table, const std::filesystem::path& output,
                         const TransformOptions& options = {}) const;
  // Returns the loss and the metrics on the rows of the table.
  Evaluation evaluate(const std::string& table, const TransformOptions& options = {}) const;

 private:
  std::string run_;
  std::filesystem::path folder_;
  std::vector<EpochResult> history_;
};

// Trains on `table` (HDF5, CSV, NumPy or IDX) and returns the model. It starts the ranks as launch() does.
// Throws: Error with the message of the rank that failed first.
class Estimator {
 public:
  explicit Estimator(EstimatorOptions options);  // throws as EstimatorOptions::check()
  TrainedModel fit(const std::string& table);

 private:
  EstimatorOptions options_;
};

}  // namespace farandole

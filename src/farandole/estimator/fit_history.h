// What rank 0 records of a fit: fit.json, metrics.jsonl, a line for each epoch.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "farandole/estimator/epoch_trainer.h"
#include "farandole/estimator/store.h"
#include "farandole/train/run/metrics_log.h"

namespace farandole {

class FitHistory {
 public:
  // `options` must outlive this object.
  FitHistory(const EstimatorOptions& options, FitRecord record)
      : options_(options), record_(std::move(record)) {}

  const FitRecord& record() const { return record_; }
  // Leaves out what an earlier start recorded after this step of this epoch.
  void begin(std::int64_t step, std::int64_t epoch);
  // `loss` is the mean over the ranks.
  void add(std::int64_t step, std::int64_t epoch, double loss, const StepResult& result);
  bool out_of_patience() const;  // As EstimatorOptions::patience has it.
  // Returns whether the training is to end.
  bool add(const EpochResult& result, const std::vector<ResourceUsage>& usage);
  // Sets what a checkpoint says of the epochs so far. `score` is NaN within an epoch.
  void describe(Snapshot& snapshot, double score) const;
  void publish();  // fit.json
  void finish();   // The same, for a fit that has ended.

 private:
  void print(const EpochResult& result) const;

  const EstimatorOptions& options_;
  FitRecord record_;
  std::unique_ptr<MetricsLog> metrics_;
};

}  // namespace farandole

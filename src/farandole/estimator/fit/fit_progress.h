// Where a fit is within its epoch, as its checkpoints have it. It does not depend on the number of ranks or
// the batch size.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <string>
#include <torch/types.h>

#include "farandole/checkpoint/snapshot.h"
#include "farandole/tables/table_reader.h"

namespace farandole {

struct FitProgress {
  std::int64_t step = 0, epoch = 0;  // Optimizer steps and epochs that are done.
  std::int64_t passes = 0;           // Batches that each rank has taken in this epoch.
  RowRanges done{};                  // Rows of the epoch's order that have been read.
  double loss = 0;                   // Mean over the steps of this epoch.
  std::int64_t steps = 0;            // In this epoch.

  // Throws: CorruptInput if the snapshot has no position.
  static FitProgress from(const Snapshot& snapshot);
  // Adds what position_of() does not read.
  void add_to(SnapshotBuilder& snapshot) const;
  // For a broadcast.
  std::string to_json() const;
  static FitProgress from_json(const std::string& text);
};

// The sums of the metrics on the training rows (Scores::sums).
void add_scores(SnapshotBuilder& snapshot, const torch::Tensor& sums);
// Returns an undefined tensor if the checkpoint has none.
torch::Tensor scores_in(const Snapshot& snapshot);

}  // namespace farandole

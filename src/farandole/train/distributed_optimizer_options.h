// What a DistributedOptimizer does. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/bucket_options.h"
#include "farandole/fusion/compression.h"

namespace farandole {

class Group;

// What the ranks keep equal: their gradients in each step, or their parameters now and then.
struct Synchronization {
  enum class Kind { gradients, parameters };
  Kind kind = Kind::gradients;
  std::int64_t every =
      0;  // steps from one average of the parameters to the next; 0: at the end of each epoch

  bool of_parameters() const { return kind == Kind::parameters; }
  friend bool operator==(const Synchronization&, const Synchronization&) = default;
};

// "gradients", "parameters:K" or "parameters:epoch".
// Throws: UserError for any other text.
Synchronization parse_synchronization(std::string_view text);

struct DistributedOptimizerOptions {
  // Gradients of so many backward calls are added up, as PyTorch does, before they are reduced and step() is
  // called.
  int backward_passes_per_step = 1;
  bool average = true;                // over ranks; false: sum
  std::optional<double> clip_norm{};  // bound for the global 2-norm, applied to the reduced gradients
  BucketOptions buckets{};
  Compression compression{};  // of gradients on their way between ranks
  // Try other bucket sizes in the first steps, and keep the best; see tuned().
  bool tune = false;
  // With Kind::parameters each rank steps by its own gradients (local SGD), and average_parameters() is called
  // every so many steps, or by the user alone.
  Synchronization synchronization{};
  // Names of parameters that get sparse gradients, as sparse_parameters(module) finds them. Their rows are
  // gathered after backward and are not compressed. They stay sparse for the optimizer's own step(), which
  // must support sparse gradients (SGD without weight decay and Adagrad do; Adam and AdamW do not). All other
  // gradients are reduced dense.
  std::vector<std::string> sparse_parameters{};
  Group* group = nullptr;  // of ranks that train together, this one among them; null: all
};

struct TunedPlan {
  std::size_t bucket_bytes = 0;
  double milliseconds = 0, default_milliseconds = 0;  // medians of a step, on the slowest rank
  int steps = 0;                                      // that the search took
};

}  // namespace farandole

// Options of a DistributedOptimizer. Plain values.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/bucket_options.h"
#include "farandole/base/error.h"
#include "farandole/fusion/compression.h"

namespace farandole {

class Group;

// What the ranks keep equal: their gradients in each step, or their parameters from time to time.
struct Synchronization {
  enum class Kind { gradients, parameters };
  Kind kind = Kind::gradients;
  std::int64_t every = 0;  // Steps between averages of the parameters; 0: at the end of each epoch.

  bool of_parameters() const { return kind == Kind::parameters; }
  friend bool operator==(const Synchronization&, const Synchronization&) = default;
};

// Parses "gradients", "parameters:K" or "parameters:epoch".
// Throws: UserError if the text is none of these.
Synchronization parse_synchronization(std::string_view text);

// What step() does if a gradient is a NaN or an infinity on any rank. stop: throws NonFiniteGradient. skip:
// leaves all parameters and the state of the optimizer unchanged (see DistributedOptimizer::skipped()).
// update: updates anyway.
enum class OnNonFinite { stop, skip, update };

// Multiplies the loss, for forward passes in float16; see DistributedOptimizer::scale().
struct LossScaling {
  double initial = 65536;               // A power of two between 1 and 2^24.
  std::int64_t growth_interval = 2000;  // The factor doubles after this number of steps without an overflow.
};

// Whether the ranks of a node keep parameters and the optimizer's state once, in memory that they share, and
// each of them updates only its part. The results are the same. `automatic` does it where it is possible and as
// long as a program does not change parameters itself in each step. `required` refuses what makes it
// impossible; see DistributedOptimizer::sharding().
enum class Shard { automatic, off, required };
// Parses "auto", "off" or "on".
// Throws: UserError if the text is none of these.
Shard parse_shard(std::string_view text);

struct DistributedOptimizerOptions {
  // Number of backward calls whose gradients are added, as in PyTorch, before they are reduced
  // and step() is called.
  int backward_passes_per_step = 1;
  bool average = true;                // False: sum over ranks.
  std::optional<double> clip_norm{};  // Limit for the global 2-norm of the reduced gradients.
  BucketOptions buckets{};
  Compression compression{};  // Compression of gradients between ranks.
  // Tries other bucket sizes in the first steps and then uses the best; see tuned().
  bool tune = false;
  // With parameters: each rank steps with its own gradients (local SGD), and average_parameters() runs every
  // given number of steps, or only when the user calls it.
  Synchronization synchronization{};
  // Names of parameters with sparse gradients, from sparse_parameters(module). Their gradients are reduced by
  // gathering rows after backward. They are not compressed and stay sparse for the optimizer's own step(),
  // which must support them: SGD without weight decay and Adagrad do; Adam and AdamW do not. All other
  // gradients are reduced as dense tensors.
  std::vector<std::string> sparse_parameters{};
  Group* group = nullptr;  // Ranks that train together, including this one; null: all ranks.
  // If ranks synchronize parameters, each rank decides alone. With skip, no bucket is updated before all
  // of them are reduced.
  OnNonFinite on_nonfinite = OnNonFinite::stop;
  // Not with averaged parameters or a closure.
  std::optional<LossScaling> loss_scaling{};
  Shard shard = Shard::automatic;
  // Called in each step, possibly on another thread; see DistributedOptimizer::stopping().
  std::function<bool()> stop_requested{};
};

// The message names the first of these parameters, in the order of backward, and the ranks.
class NonFiniteGradient : public Error {
 public:
  NonFiniteGradient(std::string parameter, std::vector<int> ranks);
  const std::string& parameter() const { return parameter_; }
  // The ranks on which a gradient was not finite before its reduction. Empty if only the compression made it
  // so, and on GPUs, where gradients are checked only after their reduction.
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  std::string parameter_;
  std::vector<int> ranks_;
};

// What became of DistributedOptimizerOptions::shard.
struct Sharding {
  bool divided = false;  // Parameters and state are shared and updated in parts.
  std::string why_not;   // If they are not divided.
  int ranks = 1;         // That share them on the node of this rank.
  bool on_gpus = false;  // Only the state is divided, by all ranks.
  // On this node, or on the GPU of this rank: parameters and state now, and what they would
  // need without sharding.
  std::size_t bytes = 0, bytes_undivided = 0;
};

// One line for people.
std::string describe(const Sharding& sharding);

struct TunedPlan {
  std::size_t bucket_bytes = 0;
  double milliseconds = 0, default_milliseconds = 0;  // Median duration of a step on the slowest rank.
  int steps = 0;                                      // Steps that the tuning took.
};

}  // namespace farandole

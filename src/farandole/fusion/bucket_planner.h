// Decides which buckets the next step uses. At first they follow the options. After the first step they
// follow the order in which rank 0's gradients became ready, so that the first buckets are full early. If
// tuning is enabled, the fastest size is used afterwards.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/comm/communicator.h"

namespace farandole {

// The sizes to try. `preset` is the first one. Each other size gives `tensors` a number of buckets that
// no earlier size gives.
// Units: bytes.
std::vector<std::size_t> bucket_sizes_to_try(const std::vector<TensorSpec>& tensors, std::size_t preset);

// Finds by trial, in the first steps of a run, the bucket size with which steps are fastest. It only keeps
// the measurements; its user runs the steps and makes the ranks agree.
// Sizes are tried alternately for a few steps each, in rounds. After each round, sizes that are clearly
// slower than the best one are dropped, so a bad size costs only one turn.
class Autotuner {
 public:
  static constexpr int steps_a_turn = 6;  // the first one uses new memory and does not count
  static constexpr int rounds = 3;
  static constexpr double hopeless = 1.05;  // relative to the best: a slower size is dropped after a round
  // Relative to the default: the default is replaced only by a faster size.
  static constexpr double better = 0.99;

  // At least one size is required, in bytes. The first one is the default.
  explicit Autotuner(const std::vector<std::size_t>& sizes);

  bool finished() const { return round_ == rounds || remaining() == 1; }
  // The size for the next step. After the end, the chosen size.
  std::size_t current() const { return trials_[finished() ? best_ : now_].bucket_bytes; }
  // Records the duration of a step with current(). Returns true at the end of a round; the ranks must then
  // agree on medians() and call decide().
  bool record(double milliseconds);
  // By size, over all rounds; 0 for sizes that were dropped.
  std::vector<double> medians() const;
  // `medians` must be equal on all ranks.
  void decide(std::span<const double> medians);

  // Results after the end, in milliseconds, as agreed in the last round.
  double milliseconds() const { return agreed_[best_]; }
  double default_milliseconds() const { return agreed_.front(); }
  int steps() const { return steps_; }

 private:
  struct Trial {
    std::size_t bucket_bytes = 0;
    std::vector<double> milliseconds;
    bool out = false;
  };
  std::size_t remaining() const;

  std::vector<Trial> trials_;
  std::vector<double> agreed_;
  std::size_t now_ = 0, best_ = 0;
  int round_ = 0;
  int steps_in_turn_ = 0;
  int steps_ = 0;
};

class BucketPlanner {
 public:
  struct Options {
    BucketOptions sizes{};
    // Buckets are never planned in the order of the gradients.
    bool keep_order = false;
    // Tries other sizes of buckets in the first steps; not with keep_order.
    bool tune = false;
  };
  // `ranks` must outlive this object.
  BucketPlanner(Communicator& ranks, std::vector<TensorSpec> tensors, const Options& options);

  BucketPlan plan() const { return plan_buckets(tensors_, sizes_, order_); }
  // From now on, buckets are not planned in the order of the gradients.
  void keep_order() { ordered_ = true; }
  // Call this between steps. `first_order` comes from GradientReducer. Returns whether plan() has changed.
  // Collective: every rank of the group must call this in the same order.
  bool reconsider(std::span<const std::size_t> first_order);

  // Call this at the end of each step.
  // Collective: every rank of the group must call this in the same order.
  void step_ended();
  // The time until the end of the next step is not measured.
  void skip_time() { step_ended_ns_ = 0; }
  // Returns the tuner that has finished; null before and without tuning.
  const Autotuner* tuned() const { return tuner_ && tuner_->finished() ? &*tuner_ : nullptr; }

 private:
  Communicator& ranks_;
  const std::vector<TensorSpec> tensors_;
  const bool tune_;
  BucketOptions sizes_;
  std::vector<std::size_t> order_;  // Expected order of the gradients; empty: unknown.
  bool ordered_;
  std::optional<Autotuner> tuner_;
  std::int64_t step_ended_ns_ = 0;
};

}  // namespace farandole

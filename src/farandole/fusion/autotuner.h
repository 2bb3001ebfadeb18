// Finds by trial, in the first steps of a run, the size of buckets with which steps are fastest. It only
// keeps the books: its user runs the steps and makes the ranks agree. Used by one thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "farandole/base/bucket_plan.h"

namespace farandole {

// In bytes: `preset` first, then sizes that give `tensors` other numbers of buckets than those before them.
std::vector<std::size_t> bucket_sizes_to_try(const std::vector<TensorSpec>& tensors, std::size_t preset);

// Sizes take turns, a few steps each, in rounds. After each round, those that are clearly slower than the
// best drop out. So a bad size costs one turn.
class Autotuner {
 public:
  static constexpr int steps_a_turn = 6;  // of which the first, in fresh memory, does not count
  static constexpr int rounds = 3;
  static constexpr double hopeless = 1.05;  // times the best: out after a round
  static constexpr double better = 0.99;    // times the default: what it takes to replace that

  // There is at least one size, in bytes; the first is the default.
  explicit Autotuner(const std::vector<std::size_t>& sizes);

  bool finished() const { return round_ == rounds || remaining() == 1; }
  // The size that the next step is to run with; after the end, the one to stay with.
  std::size_t current() const { return trials_[finished() ? best_ : now_].bucket_bytes; }
  // A step with current() took so long. Returns whether that was the round's last: then the ranks agree on
  // medians() and call decide().
  bool record(double milliseconds);
  // By size, over all rounds; 0 for those that are out.
  std::vector<double> medians() const;
  // `medians`: the same on all ranks.
  void decide(std::span<const double> medians);

  // What is known at the end; milliseconds as last agreed.
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

}  // namespace farandole

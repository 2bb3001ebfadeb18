// Finds by trial, in the first steps of a run, how gradients are best reduced. Pure bookkeeping: its user
// runs the steps and makes ranks agree. Used by one thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "farandole/fusion/gradient_reducer.h"

namespace farandole {

struct PlanChoice {
  std::size_t bucket_bytes = 0;
  ReductionProgress progress = ReductionProgress::automatic;

  friend bool operator==(const PlanChoice&, const PlanChoice&) = default;
};

// The default first; then bucket sizes that give `tensors` other numbers of buckets than those before them;
// then, where `either_progress`, the default with the progress that `automatic` does not take.
std::vector<PlanChoice> plan_choices(const std::vector<TensorSpec>& tensors, const PlanChoice& preset,
                                     bool either_progress);

// Choices take turns, a few steps each, in rounds. After each round those that are clearly slower than the
// best drop out; so bad ones cost one turn.
class Autotuner {
 public:
  static constexpr int steps_a_turn = 6;  // of which the first, in fresh memory, does not count
  static constexpr int rounds = 3;
  static constexpr double hopeless = 1.05;  // times the best: out after a round
  static constexpr double better = 0.99;    // times the default: what it takes to replace that

  // There is at least one choice.
  explicit Autotuner(std::vector<PlanChoice> choices);

  bool finished() const { return round_ == rounds || remaining() == 1; }
  // The choice that the next step is to run with; after the end, the one to stay with.
  const PlanChoice& current() const;
  // A step with current() took so long. Returns whether that was the round's last: then the ranks agree on
  // medians() and call decide().
  bool record(double milliseconds);
  // By choice, over all rounds; 0 for those that are out.
  std::vector<double> medians() const;
  // `medians`: the same on all ranks.
  void decide(std::span<const double> medians);

  // What is known at the end; milliseconds as last agreed.
  double milliseconds() const { return agreed_[best_]; }
  double default_milliseconds() const { return agreed_.front(); }
  int steps() const { return steps_; }

 private:
  struct Trial {
    PlanChoice choice;
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

// The learning rate as a pure function of the step. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>

namespace farandole {

// Linear scaling with gradual warm-up (Goyal et al. 2017, https://arxiv.org/abs/1706.02677; Horovod's
// warm-up). N ranks average the gradients of an N times larger batch; therefore the rate rises from base to N
// * base in the first steps.
struct LearningRate {
  enum class Schedule { constant, cosine, step, polynomial, one_cycle };

  double base = 0.01;  // For one rank.
  int world_size = 1;
  bool scale = true;              // False: the peak is `base` for any number of ranks.
  std::int64_t warmup_steps = 0;  // Optimizer steps from base to the peak.
  Schedule schedule = Schedule::constant;
  std::int64_t total_steps = 0;  // Cosine and polynomial begin after the warm-up and reach `minimum` here.
  double minimum = 0;
  std::int64_t step_size = 1;  // A step schedule multiplies the rate by `gamma` every so many steps.
  double gamma = 0.1;
  double power = 1;  // Exponent of the polynomial; 1: linear.

  double peak() const { return scale ? base * world_size : base; }

  // Returns the rate of optimizer step 0, 1, …. After total_steps, the last rate stays.
  // One-cycle (Smith and Topin 2018, https://arxiv.org/abs/1708.07120) has a warm-up of its own and the shape
  // of PyTorch's OneCycleLR: the rate rises from peak / 25 to the peak in the first 30 % of the steps, then
  // falls to peak / 250,000. Both parts are half a cosine.
  double at(std::int64_t step) const;
};

}  // namespace farandole

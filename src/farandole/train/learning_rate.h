// The learning rate as a pure function of the step. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>

namespace farandole {

// Linear scaling with gradual warm-up (Goyal et al. 2017, https://arxiv.org/abs/1706.02677; Horovod's
// warm-up). N ranks average the gradients of an N times larger batch; therefore the rate rises from base to N
// * base in the first steps.
struct LearningRate {
  enum class Schedule { constant, cosine };

  double base = 0.01;  // Of one rank.
  int world_size = 1;
  bool scale = true;              // False: the peak is `base` for any number of ranks.
  std::int64_t warmup_steps = 0;  // Optimizer steps from base to the peak.
  Schedule schedule = Schedule::constant;
  std::int64_t total_steps = 0;  // The cosine begins after the warm-up and reaches `minimum` here.
  double minimum = 0;

  double peak() const { return scale ? base * world_size : base; }

  // Returns the rate of optimizer step 0, 1, …. After total_steps, a cosine stays at `minimum`.
  double at(std::int64_t step) const;
};

}  // namespace farandole

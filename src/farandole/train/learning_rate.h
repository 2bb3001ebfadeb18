// The learning rate as a pure function of the step. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>

namespace farandole {

// Linear scaling with gradual warm-up (Goyal et al. 2017, https://arxiv.org/abs/1706.02677; Horovod's
// warm-up): N ranks average the gradients of an N times larger batch, so the rate grows to N * base, from
// base over the first steps.
struct LearningRate {
  enum class Schedule { constant, cosine };

  double base = 0.01;  // of one rank
  int world_size = 1;
  bool scale = true;              // false: the peak is `base` on any number of ranks
  std::int64_t warmup_steps = 0;  // optimizer steps from base to the peak
  Schedule schedule = Schedule::constant;
  std::int64_t total_steps = 0;  // where the cosine reaches `minimum`; it begins after the warm-up
  double minimum = 0;

  double peak() const { return scale ? base * world_size : base; }

  // The rate of optimizer step 0, 1, …; beyond total_steps a cosine stays at `minimum`.
  double at(std::int64_t step) const;
};

}  // namespace farandole

// Dynamic loss scaling, as PyTorch's GradScaler does it: the factor that keeps small gradients above the
// smallest number of float16. It falls when a gradient overflows and rises again after many steps without an
// overflow. The gradients of all ranks decide, so all ranks have the same factor. It is a power of two, so
// that it does not round.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "farandole/train/distributed_optimizer_options.h"

namespace farandole {

class LossScaler {
 public:
  struct State {
    double scale = 1;
    std::int64_t good_steps = 0;  // since the scale has changed
  };
  static constexpr double smallest = 1, largest = 0x1p24;

  explicit LossScaler(const LossScaling& options) : options_(options), state_{options.initial, 0} {}

  double scale() const { return state_.scale; }
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

  // A gradient was not finite. Returns false if the scale is not the reason, because it is as small as
  // it can be.
  bool overflowed() {
    if (state_.scale <= smallest) return false;
    state_ = {state_.scale / 2, 0};
    return true;
  }
  void stepped() {
    if (++state_.good_steps < options_.growth_interval) return;
    state_ = {std::min(state_.scale * 2, largest), 0};
  }

 private:
  const LossScaling options_;
  State state_;
};

}  // namespace farandole

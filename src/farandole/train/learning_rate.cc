#include "farandole/train/learning_rate.h"

#include <cmath>
#include <numbers>

namespace farandole {

double LearningRate::at(std::int64_t step) const {
  const double top = peak();
  if (step < warmup_steps) {
    return base + (top - base) * static_cast<double>(step) / static_cast<double>(warmup_steps);
  }
  if (schedule == Schedule::constant || total_steps <= warmup_steps) return top;
  if (step >= total_steps) return minimum;
  const double progress =
      static_cast<double>(step - warmup_steps) / static_cast<double>(total_steps - warmup_steps);
  return top - 0.5 * (top - minimum) * (1 - std::cos(std::numbers::pi * progress));
}

}  // namespace farandole

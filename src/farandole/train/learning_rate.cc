#include "farandole/train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace farandole {

namespace {

// From `first` to `last` as `progress` goes from 0 to 1.
double half_cosine(double first, double last, double progress) {
  return first + 0.5 * (last - first) * (1 - std::cos(std::numbers::pi * progress));
}

double one_cycle(double top, double progress) {
  constexpr double rise = 0.3, start = 1.0 / 25, end = start / 1e4;
  if (progress < rise) return half_cosine(start * top, top, progress / rise);
  return half_cosine(top, end * top, (progress - rise) / (1 - rise));
}

}  // namespace

double LearningRate::at(std::int64_t step) const {
  const double top = peak();
  const auto part = [](std::int64_t a, std::int64_t b) {
    return std::clamp(static_cast<double>(a) / static_cast<double>(b), 0.0, 1.0);
  };
  if (schedule == Schedule::one_cycle)
    return one_cycle(top, part(step, std::max<std::int64_t>(total_steps - 1, 1)));
  if (step < warmup_steps)
    return base + (top - base) * static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (schedule == Schedule::step)
    return top *
           std::pow(gamma, static_cast<double>((step - warmup_steps) / std::max<std::int64_t>(step_size, 1)));
  if (schedule == Schedule::constant || total_steps <= warmup_steps) return top;
  const double progress = part(step - warmup_steps, total_steps - warmup_steps);
  if (schedule == Schedule::polynomial) return minimum + (top - minimum) * std::pow(1 - progress, power);
  return half_cosine(top, minimum, progress);
}

}  // namespace farandole

// Random options of optimizers for tests of updates.
#pragma once

#include <cmath>
#include <random>

#include "farandole/comm/kernels/update.h"

namespace farandole {

inline double between(std::mt19937& random, double low, double high) {
  return std::uniform_real_distribution<>(low, high)(random);
}
inline bool coin(std::mt19937& random) {
  return random() % 2 == 0;
}

inline UpdateRule random_rule(std::mt19937& random) {
  UpdateRule rule;
  rule.kind = static_cast<UpdateRule::Kind>(random() % 4);
  rule.lr = std::pow(10, between(random, -4, 0));
  if (coin(random)) rule.weight_decay = between(random, 0, 0.5);
  if (coin(random)) rule.momentum = between(random, 0.1, 1);
  if (coin(random) && rule.kind == UpdateRule::Kind::sgd) rule.dampening = between(random, 0, 1);
  rule.nesterov = coin(random);
  rule.beta1 = between(random, 0, 0.99);
  rule.beta2 = between(random, 0.5, 0.9999);
  rule.amsgrad = coin(random);
  rule.alpha = between(random, 0.5, 0.999);
  rule.centered = coin(random);
  rule.eps = std::pow(10, between(random, -8, -3));
  return rule;
}

}  // namespace farandole

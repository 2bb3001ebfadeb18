// Data made up from a fixed seed, learnable, the same on every machine: for benchmarks and tests. Usable from
// any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "farandole/trainer/data/dataset.h"

namespace farandole {

// A Gaussian blob a class: x = centre of the class + noise of standard deviation 1; centres of standard
// deviation 1.
DataSplit synthetic_samples(const DataOptions& options);

// A first-order Markov chain over 32 bytes, each with four successors of probability 0.6, 0.2, 0.15, 0.05.
DataSplit synthetic_text(const DataOptions& options);

// What a perfect model reaches on that text, in nats a byte: the entropy of those probabilities.
inline constexpr double synthetic_text_entropy = 1.0627;

}  // namespace farandole

// Synthetic data from a fixed seed, for benchmarks and tests. The data can be learned and is the
// same on every machine.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <vector>

#include "farandole/trainer/data/dataset.h"

namespace farandole {

// Each class is a Gaussian: x = centre of the class + noise with standard deviation 1. The centres
// have standard deviation 1.
DataSplit synthetic_samples(const DataOptions& options);

// A first-order Markov chain over 32 bytes, each with four successors of probability 0.6, 0.2, 0.15, 0.05.
// Their entropy, the loss of a perfect model, is 1.0627 nats per byte.
DataSplit synthetic_text(const DataOptions& options);

}  // namespace farandole

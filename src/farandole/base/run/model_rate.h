// How fast a run computes its model, against what its devices can do. Plain values and pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <optional>
#include <string>

#include "farandole/base/run/run_json.h"

namespace farandole {

struct ModelRate {
  double tflops = 0;          // of all ranks together, in 10^12 operations per second
  std::optional<double> mfu;  // fraction of the peak of all devices; none: their peak is unknown

  std::string text() const;  // "395 TFLOP/s, MFU 39.9 %"
};

// Returns std::nullopt if run.json does not say how many operations the model of a step needs.
std::optional<ModelRate> model_rate(const RunFacts& facts, double step_s);

// "1.23 TFLOP a step, counted from LibTorch's operators; peak 989.4 TFLOP/s per device (NVIDIA H100 80GB
// HBM3, bfloat16)". Empty if the operations are unknown.
std::string describe_model_flops(const RunFacts& facts);

}  // namespace farandole

// What the programs that measure a GPU share.
#pragma once

#include <algorithm>
#include <fmt/format.h>
#include <thread>
#include <utility>
#include <vector>

#include "farandole/base/bucket_plan.h"
#include "farandole/base/clock.h"
#include "farandole/comm/gpu/gpu_runtime.h"

namespace farandole {

// The tensors of GPT-2; it has 124 million parameters with a width of 768 and 12 layers.
inline std::vector<TensorSpec> gpt_tensors(std::int64_t width, std::int64_t layers) {
  std::vector<TensorSpec> tensors;
  const auto add = [&](std::vector<std::int64_t> shape) {
    tensors.push_back({fmt::format("t{}", tensors.size()), std::move(shape), DType::float32});
  };
  add({50257, width});
  add({1024, width});
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (const auto& [out, in] :
         {std::pair{3 * width, width}, {width, width}, {4 * width, width}, {width, 4 * width}}) {
      add({out, in});
      add({out});
    }
    for (int i = 0; i < 4; ++i) add({width});
  }
  return tensors;
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// From the call of `work` until what it has queued on the stream is done.
template <class Work>
double seconds_of(const std::shared_ptr<const GpuRuntime>& runtime, CUstream_st* stream, Work work) {
  GpuEvent end(runtime);
  const auto start = now_ns();
  work();
  end.record(stream);
  while (!end.reached()) std::this_thread::yield();
  return seconds_since(start);
}

}  // namespace farandole

// A complete training state as plain bytes, independent of LibTorch: what a checkpoint file holds. Plain
// values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "farandole/base/dtype.h"

namespace farandole {

// One array; `path` is its absolute HDF5 path, for example "/model/conv1.weight",
// "/optimizer/state/conv1.weight/momentum_buffer",
// "/rng/rank-0000". An empty shape is a scalar. Row-major.
struct Array {
  std::string path;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  std::size_t count() const;  // product of the shape
};

struct Snapshot {
  std::int64_t step = 0;   // optimizer steps done
  std::int64_t epoch = 0;  // epochs completed
  int world_size = 1;
  std::string config;  // JSON: the options that decide what the model is and how it trains
  double score = 0;    // lower is better (held-out loss); NaN: not evaluated
  std::vector<Array> arrays;

  const Array* find(std::string_view path) const;  // nullptr: absent
};

}  // namespace farandole

// A complete training state as plain bytes, independent of LibTorch. A checkpoint file holds one snapshot.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/bytes.h"
#include "farandole/base/dtype.h"

namespace farandole {

// One array in row-major order. `path` is its absolute HDF5 path, for example "/model/conv1.weight",
// "/optimizer/state/conv1.weight/momentum_buffer" or "/rng/rank-0000". An empty shape is a scalar.
struct Array {
  std::string path;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  Bytes bytes;

  std::size_t count() const;  // product of the shape
};

struct Digest {
  std::uint64_t xxh3 = 0;  // XXH3 with 64 bits, over the bytes
  bool finite = true;      // no number is a NaN or an infinity
};

// Reads the bytes once.
Digest digest_of(const Array& array);

struct Snapshot {
  std::int64_t step = 0;   // completed optimizer steps
  std::int64_t epoch = 0;  // completed epochs
  int world_size = 1;
  std::string config;  // JSON with the options that define the model and its training
  double score = 0;    // lower is better (held-out loss); NaN if it was not evaluated
  // Path of an array that is not finite. A file has it if CheckpointStore wrote it or the arrays were read.
  std::string not_finite;
  std::vector<Array> arrays;

  const Array* find(std::string_view path) const;  // nullptr if it does not exist
};

// Fills a snapshot. It uses the memory of an old snapshot again if the same arrays come in the same order. Then
// nothing is allocated.
class SnapshotBuilder {
 public:
  explicit SnapshotBuilder(Snapshot old = {});

  // Adds an array and returns the memory for its bytes, which the caller must fill.
  std::span<std::byte> add(std::string_view path, DType dtype, std::span<const std::int64_t> shape);
  void add_integer(std::string_view path, std::int64_t value);  // int64 scalar
  Snapshot& header() { return snapshot_; }                      // all but the arrays
  Snapshot finish();

 private:
  Snapshot snapshot_;
  std::size_t used_ = 0;  // arrays
};

}  // namespace farandole

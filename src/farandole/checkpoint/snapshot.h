// A complete training state as plain bytes, independent of LibTorch. A checkpoint file holds one snapshot.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/base/bytes.h"
#include "farandole/base/dtype.h"
#include "farandole/checkpoint/schema.h"

namespace farandole {

// One array in row-major order. `path` is its absolute HDF5 path (schema.h). An empty shape is a scalar.
struct Array {
  std::string path;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;
  Bytes bytes;

  std::size_t count() const;  // product of the shape
};

inline constexpr double score_unknown = std::numeric_limits<double>::quiet_NaN();

struct Digest {
  std::uint64_t xxh3 = 0;  // XXH3 with 64 bits, over the bytes
  bool finite = true;      // no number is a NaN or an infinity
};

// Computes the digest of an array from pieces of its bytes. Pieces of at most `piece_bytes` stay in the cache
// of a core for the second look at them.
class Digester {
 public:
  static constexpr std::size_t piece_bytes = 256 << 10;

  explicit Digester(DType dtype);
  // The length of each piece but the last must be a multiple of the size of an element.
  void update(std::span<const std::byte> piece);
  Digest result() const;

 private:
  DType dtype_;
  std::shared_ptr<void> xxh3_;
  bool finite_ = true;
};

Digest digest_of(const Array& array);

// checkpoint/schema.h describes the fields and the arrays.
struct Snapshot {
  std::int64_t format_version = schema::format_version;  // of the file that it was read from
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  int world_size = 1;
  std::string config;
  std::string versions;               // empty in files of format version 1
  double score = 0;                   // lower is better; NaN if it was not evaluated
  double best_score = score_unknown;  // NaN if it is not known
  std::int64_t best_step = 0;
  // Path of an array with a NaN or an infinity, as far as it is known: of a snapshot that was
  // written or read.
  std::string not_finite;
  std::vector<Array> arrays;

  const Array* find(std::string_view path) const;  // nullptr if it does not exist
};

// Fills a snapshot. It uses the memory of an old snapshot again if the same arrays come in the same order.
// Then nothing is allocated.
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

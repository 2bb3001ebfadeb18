// How large the buckets are in which gradients travel together. Plain values.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>

namespace farandole {

// Units: bytes.
struct BucketOptions {
  std::size_t bytes = std::size_t{25} << 20;       // a bucket ends with the tensor that reaches this size
  std::size_t first_bytes = std::size_t{1} << 20;  // the same for the first bucket; used if it is smaller
};

}  // namespace farandole

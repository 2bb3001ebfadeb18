// Assigns gradients to buckets. The plan is a pure function of the list of tensors, so all ranks compute the
// same plan without a message, and the analyzer can compute the buckets of a recorded run.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "farandole/base/bucket_options.h"
#include "farandole/base/dtype.h"

namespace farandole {

struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::float32;

  std::size_t count() const;  // number of elements
  std::size_t bytes() const { return count() * size_of(dtype); }
  std::string describe() const;  // "fc1.weight float32 [50, 320]"
};

struct BucketSlot {
  std::size_t tensor = 0;  // index in the planned list
  std::size_t offset = 0;  // elements from the bucket's start; 64-byte aligned
  std::size_t count = 0;   // number of elements
};

// The memory of a bucket. Each slot is padded to a multiple of 64 bytes. After the slots come flags: one
// element per slot that says whether the gradient is present, and one that says whether a rank must stop
// (see gradient_reducer.h). Kernels process only whole vectors, so the result for an element does not depend
// on its position.
struct Bucket {
  DType dtype = DType::float32;
  std::vector<BucketSlot> slots;
  std::size_t payload = 0;  // elements before the flags, including padding

  std::size_t count() const { return payload + slots.size() + 1; }  // total number of elements
  std::size_t bytes() const { return count() * size_of(dtype); }
  void append(std::size_t tensor, std::size_t elements);
};

struct BucketPlan {
  std::vector<TensorSpec> tensors;
  std::vector<Bucket> buckets;  // in the order of their reduction
};

// Assigns the tensors in `order` (each index once), which is the order in which their gradients are expected.
// A full bucket is closed. Each element type has its own buckets. Without an order, the tensors are taken
// from last to first, which is roughly the order of backward.
BucketPlan plan_buckets(std::vector<TensorSpec> tensors, const BucketOptions& options,
                        std::span<const std::size_t> order = {});

}  // namespace farandole

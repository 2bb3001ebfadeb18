// Which gradients travel together. The plan is a pure function of the list of tensors, so that all ranks make
// the same one without a message, and the analyzer can plan the buckets of a run that was recorded. Usable
// from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "farandole/base/dtype.h"

namespace farandole {

struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::float32;

  std::size_t count() const;  // elements
  std::size_t bytes() const { return count() * size_of(dtype); }
  std::string describe() const;  // "fc1.weight float32 [50, 320]"
};

struct BucketOptions {
  std::size_t bytes = std::size_t{25} << 20;       // a bucket is closed by the tensor that reaches this
  std::size_t first_bytes = std::size_t{1} << 20;  // the same for the first, where less: an early start
};

struct BucketSlot {
  std::size_t tensor = 0;  // index into the list that was planned
  std::size_t offset = 0;  // elements from the bucket's start; 64-byte aligned
  std::size_t count = 0;   // elements
};

// A bucket's memory: its slots, each padded to whole 64 bytes, then one element a slot that says whether the
// gradient is there (see gradient_reducer.h). Whole vectors throughout: what a kernel makes of an element
// does not depend on its place.
struct Bucket {
  DType dtype = DType::float32;
  std::vector<BucketSlot> slots;
  std::size_t payload = 0;  // elements before the flags, padding included

  std::size_t count() const { return payload + slots.size(); }  // elements in all
  std::size_t bytes() const { return count() * size_of(dtype); }
  void append(std::size_t tensor, std::size_t elements);
};

struct BucketPlan {
  std::vector<TensorSpec> tensors;
  std::vector<Bucket> buckets;  // in the order of their reduction
};

// Goes through the tensors in `order` (indices, each once), in which their gradients are expected to come,
// and closes buckets as they fill; each element type fills buckets of its own. Without an order: backwards,
// as backward roughly does.
BucketPlan plan_buckets(std::vector<TensorSpec> tensors, const BucketOptions& options,
                        std::span<const std::size_t> order = {});

// The same for a recorded run, of whose gradients only the bytes are known, in the order in which they come.
// They count as float32.
BucketPlan plan_recorded_buckets(std::span<const std::uint64_t> gradient_bytes, const BucketOptions& options);
// How many of these gradients, in their order, each bucket of a recorded run holds, given the bytes of each
// bucket. Empty where they do not fit.
std::vector<std::size_t> fill_buckets(std::span<const std::uint64_t> gradient_bytes,
                                      std::span<const std::uint64_t> bucket_bytes);

}  // namespace farandole

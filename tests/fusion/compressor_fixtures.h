// Buckets of random gradients, equal for equal seeds, and the expected result of their reduction.
#pragma once

#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "fusion/thread_world.h"

#include "farandole/base/bucket_plan.h"
#include "farandole/fusion/compressor.h"

namespace farandole {

inline std::vector<TensorSpec> random_tensors(unsigned seed, DType dtype) {
  std::mt19937 random(seed);
  std::vector<TensorSpec> tensors;
  const std::size_t count = 1 + random() % 6;
  for (std::size_t i = 0; i < count; ++i) {
    const auto dimensions = random() % 4;
    std::vector<std::int64_t> shape;
    for (unsigned d = 0; d < dimensions; ++d) shape.push_back(static_cast<std::int64_t>(1 + random() % 20));
    tensors.push_back({"t" + std::to_string(i), shape, dtype});
  }
  return tensors;
}

// The bucket of one rank. If `absent` names a slot, this rank lacks its gradient.
template <class T>
struct FilledBucket {
  FilledBucket(const Bucket& bucket, unsigned seed, int rank, double magnitude = 1,
               std::size_t absent = ~std::size_t{0})
      : values(bucket.count()) {
    std::mt19937 random(seed * 1000u + static_cast<unsigned>(rank));
    std::normal_distribution<double> normal(0, magnitude);
    for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
      if (s == absent) continue;
      for (std::size_t i = 0; i < bucket.slots[s].count; ++i)
        values[bucket.slots[s].offset + i] = static_cast<T>(normal(random));
      values[bucket.payload + s] = 1;
    }
  }
  std::byte* memory() { return reinterpret_cast<std::byte*>(values.data()); }

  std::vector<T> values;
};

// Stores values that the ranks report, by rank.
template <class T>
class ByRank {
 public:
  explicit ByRank(int ranks) : values(static_cast<std::size_t>(ranks)) {}
  void set(int rank, T value) {
    const std::lock_guard lock(mutex_);
    values[static_cast<std::size_t>(rank)] = std::move(value);
  }
  std::vector<T> values;

 private:
  std::mutex mutex_;
};

}  // namespace farandole

#include "farandole/base/bucket_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <map>
#include <numeric>

namespace farandole {
namespace {

constexpr std::size_t alignment_bytes = 64;

std::size_t float32_elements(std::uint64_t bytes) {
  return (bytes + 3) / 4;
}

}  // namespace

void Bucket::append(std::size_t tensor, std::size_t elements) {
  const std::size_t step = alignment_bytes / size_of(dtype);
  slots.push_back({tensor, payload, elements});
  payload += (elements + step - 1) / step * step;
}

std::size_t TensorSpec::count() const {
  return static_cast<std::size_t>(
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
}

std::string TensorSpec::describe() const {
  return fmt::format("{} {} [{}]", name, name_of(dtype), fmt::join(shape, ", "));
}

BucketPlan plan_buckets(std::vector<TensorSpec> tensors, const BucketOptions& options,
                        std::span<const std::size_t> order) {
  BucketPlan plan;
  std::map<DType, Bucket> open;
  for (std::size_t turn = 0; turn < tensors.size(); ++turn) {
    const std::size_t i = order.empty() ? tensors.size() - 1 - turn : order[turn];
    const auto& tensor = tensors[i];
    auto& bucket = open[tensor.dtype];
    bucket.dtype = tensor.dtype;
    bucket.append(i, tensor.count());
    const std::size_t limit =
        plan.buckets.empty() ? std::min(options.first_bytes, options.bytes) : options.bytes;
    if (bucket.payload * size_of(bucket.dtype) < limit) continue;
    plan.buckets.push_back(std::move(bucket));
    open.erase(tensor.dtype);
  }
  for (auto& [dtype, bucket] : open) plan.buckets.push_back(std::move(bucket));
  plan.tensors = std::move(tensors);
  return plan;
}

BucketPlan plan_recorded_buckets(std::span<const std::uint64_t> gradient_bytes,
                                 const BucketOptions& options) {
  std::vector<TensorSpec> tensors;
  for (const auto bytes : gradient_bytes)
    tensors.push_back({{}, {static_cast<std::int64_t>(float32_elements(bytes))}, DType::float32});
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return plan_buckets(std::move(tensors), options, order);
}

std::vector<std::size_t> fill_buckets(std::span<const std::uint64_t> gradient_bytes,
                                      std::span<const std::uint64_t> bucket_bytes) {
  std::vector<std::size_t> counts;
  std::size_t next = 0;
  for (const auto bytes : bucket_bytes) {
    Bucket bucket;
    for (; next < gradient_bytes.size() && bucket.bytes() < bytes; ++next)
      bucket.append(next, float32_elements(gradient_bytes[next]));
    if (bucket.slots.empty() || bucket.bytes() != bytes) return {};
    counts.push_back(bucket.slots.size());
  }
  if (next != gradient_bytes.size()) return {};
  return counts;
}

}  // namespace farandole

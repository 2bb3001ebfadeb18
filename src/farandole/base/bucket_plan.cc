#include "farandole/base/bucket_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <map>

namespace farandole {
namespace {

constexpr std::size_t alignment_bytes = 64;

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
  for (std::size_t position = 0; position < tensors.size(); ++position) {
    const std::size_t i = order.empty() ? tensors.size() - 1 - position : order[position];
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

}  // namespace farandole

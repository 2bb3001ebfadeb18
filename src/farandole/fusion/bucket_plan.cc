#include "farandole/fusion/bucket_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <map>
#include <numeric>

namespace farandole {
namespace {

constexpr std::size_t alignment_bytes = 64;

void append(Bucket& bucket, std::size_t tensor, std::size_t count) {
  const std::size_t step = alignment_bytes / size_of(bucket.dtype);
  bucket.slots.push_back({tensor, bucket.payload, count});
  bucket.payload += (count + step - 1) / step * step;
}

}  // namespace

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
    append(bucket, i, tensor.count());
    const std::size_t limit = plan.buckets.empty() ? options.first_bytes : options.bytes;
    if (bucket.payload * size_of(bucket.dtype) < limit) continue;
    plan.buckets.push_back(std::move(bucket));
    open.erase(tensor.dtype);
  }
  for (auto& [dtype, bucket] : open) plan.buckets.push_back(std::move(bucket));
  plan.tensors = std::move(tensors);
  return plan;
}

}  // namespace farandole

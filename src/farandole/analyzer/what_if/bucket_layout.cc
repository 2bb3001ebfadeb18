#include "farandole/analyzer/what_if/bucket_layout.h"

#include <algorithm>

namespace farandole {
namespace {

constexpr std::uint64_t first_bucket_bytes = std::uint64_t{1} << 20;
constexpr std::uint64_t flag_bytes = 4;

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace

std::vector<BucketLayout> lay_out_buckets(std::span<const std::uint64_t> gradients,
                                          std::uint64_t bucket_bytes) {
  std::vector<BucketLayout> buckets;
  BucketLayout open;
  const auto close = [&] {
    open.bytes += flag_bytes * open.gradients;
    buckets.push_back(open);
    open = {};
  };
  for (const auto bytes : gradients) {
    open.bytes += padded(bytes);
    ++open.gradients;
    const auto limit = buckets.empty() ? std::min(first_bucket_bytes, bucket_bytes) : bucket_bytes;
    if (open.bytes >= limit) close();
  }
  if (open.gradients > 0) close();
  return buckets;
}

std::vector<std::size_t> fill_buckets(std::span<const std::uint64_t> gradients,
                                      std::span<const std::uint64_t> buckets) {
  std::vector<std::size_t> counts;
  std::size_t next = 0;
  for (const auto bucket : buckets) {
    std::uint64_t bytes = 0;
    std::size_t count = 0;
    while (next < gradients.size() && bytes + flag_bytes * count < bucket) {
      bytes += padded(gradients[next++]);
      ++count;
    }
    if (count == 0 || bytes + flag_bytes * count != bucket) return {};
    counts.push_back(count);
  }
  if (next != gradients.size()) return {};
  return counts;
}

}  // namespace farandole

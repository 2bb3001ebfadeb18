// How gradients are cut into buckets, as fusion/bucket_plan.h does it; a test holds the two together. Plain
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace farandole {

struct BucketLayout {
  std::size_t gradients = 0;  // so many of those that come next
  std::uint64_t bytes = 0;    // that travel
};

// `gradients`: bytes of each, in the order in which they come, of one element type of 4 bytes.
std::vector<BucketLayout> lay_out_buckets(std::span<const std::uint64_t> gradients,
                                          std::uint64_t bucket_bytes);

// Which of the gradients, in their order, make up buckets of so many bytes: for each bucket how many. Empty
// where they do not fit.
std::vector<std::size_t> fill_buckets(std::span<const std::uint64_t> gradients,
                                      std::span<const std::uint64_t> buckets);

}  // namespace farandole

#include "farandole/tables/row_selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <utility>

#include "farandole/base/error.h"

namespace farandole {
namespace {

// A permutation of 0 … n - 1 that needs no memory: a Feistel network permutes the numbers of
// an even number of bits, and a result outside of the range is permuted again (Black and
// Rogaway 2002, https://doi.org/10.1007/3-540-45760-7_9).
class Permutation {
 public:
  Permutation(std::int64_t n, std::uint64_t seed) : n_(static_cast<std::uint64_t>(n)), seed_(seed) {
    half_bits_ = std::max(1, (static_cast<int>(std::bit_width(n_)) + 1) / 2);
  }
  std::int64_t operator()(std::int64_t i) const {
    auto value = static_cast<std::uint64_t>(i);
    do value = once(value);
    while (value >= n_);
    return static_cast<std::int64_t>(value);
  }

 private:
  std::uint64_t once(std::uint64_t value) const {
    constexpr std::uint64_t rounds = 4;
    const auto mask = (std::uint64_t{1} << half_bits_) - 1;
    auto left = value >> half_bits_, right = value & mask;
    for (std::uint64_t round = 0; round < rounds; ++round)
      left = std::exchange(right, left ^ (mix(right + (seed_ + round) * 0x9e3779b97f4a7c15) & mask));
    return left << half_bits_ | right;
  }
  // The finalizer of SplitMix64.
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  std::uint64_t n_, seed_;
  int half_bits_;
};

}  // namespace

std::int64_t RowSelection::count(std::int64_t first, std::int64_t end) const {
  if (all()) return end - first;
  std::int64_t chosen = 0;
  for (auto row = first; row < end; ++row) chosen += chosen_(row) ? 1 : 0;
  return chosen;
}

std::vector<RowSelection> random_split(std::int64_t rows, std::span<const double> fractions,
                                       std::uint64_t seed) {
  const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  for (const double fraction : fractions)
    if (!(fraction > 0 && fraction <= 1))
      throw UserError(fmt::format("{} is not a fraction of a table; give numbers between 0 and 1", fraction));
  if (std::abs(sum - 1) > 1e-6)
    throw UserError(fmt::format("the fractions of a split add up to {:g}, not to 1", sum));
  const Permutation place(rows, seed);
  std::vector<RowSelection> parts;
  double before = 0;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < fractions.size(); ++i) {
    before += fractions[i];
    const auto end = i + 1 == fractions.size() ? rows : std::llround(before * static_cast<double>(rows));
    if (begin >= end)
      throw UserError(fmt::format("{} rows cannot be split into {} parts, because part {} would be empty",
                                  rows, fractions.size(), i + 1));
    parts.emplace_back([place, begin, end](std::int64_t row) {
      const auto at = place(row);
      return begin <= at && at < end;
    });
    begin = end;
  }
  return parts;
}

}  // namespace farandole

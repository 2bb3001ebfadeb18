#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>

#include "farandole/fusion/top_k_compressor.h"

namespace farandole {
namespace {

template <class T>
std::vector<std::uint32_t> by_sorting(const std::vector<T>& values, std::size_t k) {
  const auto magnitude = [&](std::uint32_t i) {
    const auto value = std::abs(static_cast<float>(values[i]));
    return std::isnan(value) ? std::numeric_limits<double>::infinity() : std::min<double>(value, 1e300);
  };
  std::vector<std::uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return magnitude(a) > magnitude(b); });
  order.resize(std::min(k, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

template <class T>
void expect_the_largest(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values(random() % 500);
  std::normal_distribution<T> normal(0, static_cast<T>(std::pow(10, static_cast<int>(seed % 9) - 4)));
  for (auto& value : values) value = normal(random);
  if (seed % 3 == 0)  // many equal values
    for (auto& value : values) value = std::round(value * 2) / 2;
  if (seed % 5 == 0 && !values.empty())
    values[random() % values.size()] = std::numeric_limits<T>::quiet_NaN();
  std::vector<std::uint32_t> indices;
  for (const std::size_t k :
       {std::size_t{0}, std::size_t{1}, values.size() / 3, values.size(), std::size_t{600}}) {
    select_largest(std::span<const T>(values), k, indices);
    ASSERT_EQ(indices, by_sorting(values, k)) << values.size() << " numbers, k " << k;
  }
}

TEST(SelectLargest, AgreesWithSorting) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    expect_the_largest<float>(seed);
    expect_the_largest<double>(seed);
  }
}

}  // namespace
}  // namespace farandole

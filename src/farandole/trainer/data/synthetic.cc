#include "farandole/trainer/data/synthetic.h"

#include <array>
#include <fmt/format.h>
#include <random>
#include <string>
#include <string_view>
#include <torch/types.h>

#include "farandole/base/error.h"
#include "farandole/trainer/data/labelled_samples.h"
#include "farandole/trainer/data/text_windows.h"

namespace farandole {
namespace {

constexpr std::uint64_t fixed_seed = 20'240'229;

void check_sizes(const DataOptions& options) {
  if (options.synthetic_samples < 2) {
    throw UserError(
        fmt::format("--synthetic-samples is {}; it must be at least 2", options.synthetic_samples));
  }
  if (options.synthetic_classes < 2) {
    throw UserError(
        fmt::format("synthetic data of {} classes: there must be 2 or more", options.synthetic_classes));
  }
  std::int64_t values = options.synthetic_samples;
  for (const auto size : options.synthetic_input) {
    if (size < 1 || __builtin_mul_overflow(values, size, &values) || values > std::int64_t{1} << 36) {
      throw UserError(
          fmt::format("synthetic data of {} samples of {} numbers in a dimension: not a size to be made",
                      options.synthetic_samples, size));
    }
  }
}

// Standard distributions differ between libraries. Therefore the four cases are selected by thresholds.
std::size_t pick(std::mt19937_64& random) {
  const auto percent = random() % 100;
  return percent < 60 ? 0 : percent < 80 ? 1 : percent < 95 ? 2 : 3;
}

}  // namespace

DataSplit synthetic_samples(const DataOptions& options) {
  check_sizes(options);
  auto shape = options.synthetic_input;
  const auto n = options.synthetic_samples;
  const auto generator = at::detail::createCPUGenerator(fixed_seed);
  shape.insert(shape.begin(), options.synthetic_classes);
  const auto centres = at::randn(shape, generator, torch::kFloat32);
  const auto y = at::randint(options.synthetic_classes, {n}, generator, torch::kInt64);
  shape.front() = n;
  const auto x = at::randn(shape, generator, torch::kFloat32).add_(centres.index_select(0, y));
  return split_samples({.x = x, .y = y, .x_test = {}, .y_test = {}, .classes = options.synthetic_classes},
                       plain_bytes(), options.held_out,
                       fmt::format("synthetic: {} samples of {} classes", n, options.synthetic_classes));
}

DataSplit synthetic_text(const DataOptions& options) {
  if (options.context < 1)
    throw UserError(fmt::format("--context is {}; it must be at least 1", options.context));
  std::int64_t size = 0;
  if (options.synthetic_samples < 2 ||
      __builtin_mul_overflow(options.synthetic_samples, options.context, &size) ||
      size > std::int64_t{1} << 36) {
    throw UserError(fmt::format("--synthetic-samples {} of {} bytes: not a size to be made",
                                options.synthetic_samples, options.context));
  }
  constexpr std::string_view alphabet = "abcdefghijklmnopqrstuvwxyz .,;'\n";
  static_assert(alphabet.size() == 32);
  std::mt19937_64 random(fixed_seed);
  std::array<std::array<std::size_t, 4>, alphabet.size()> successors{};
  for (auto& row : successors) {
    const auto start = random();  // An odd stride makes the four successors different.
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = (start + i * (start >> 32 | 1)) % alphabet.size();
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size) + 2);
  std::size_t state = 0;
  for (auto& byte : bytes) {
    byte = static_cast<std::uint8_t>(alphabet[state]);
    state = successors[state][pick(random)];
  }
  return split_text(std::move(bytes), options.context, options.held_out,
                    fmt::format("synthetic: {} bytes of text", size));
}

}  // namespace farandole

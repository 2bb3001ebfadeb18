// Element types of data that ranks exchange and that checkpoints hold.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

namespace farandole {

enum class DType : std::uint8_t {
  float16,
  bfloat16,
  float32,
  float64,
  int32,
  int64,
  uint8,
  boolean,
  int8,
  int16
};
inline constexpr DType all_dtypes[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64,
                                       DType::int32,   DType::int64,    DType::uint8,   DType::boolean,
                                       DType::int8,    DType::int16};

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
    case DType::bfloat16:
    case DType::int16:
      return 2;
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::float64:
    case DType::int64:
      return 8;
    case DType::uint8:
    case DType::boolean:
    case DType::int8:
      return 1;
  }
  return 0;
}

// PyTorch's names without the prefix "torch.".
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {"float16", "bfloat16", "float32", "float64", "int32",
                                        "int64",   "uint8",    "bool",    "int8",    "int16"};
  const auto index = static_cast<std::size_t>(dtype);
  return index < std::size(names) ? names[index] : "unknown";
}

// The number that lies at `at`, in any alignment. A whole number of more than 53 bits loses its last ones.
double number_at(const std::byte* at, DType dtype);

// True if no number is a NaN or an infinity. Integers always are finite. `bytes` may have any alignment.
bool has_only_finite(std::span<const std::byte> bytes, DType dtype);

}  // namespace farandole

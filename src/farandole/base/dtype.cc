#include "farandole/base/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace farandole {
namespace {

// The loader chooses the version of a function for the widest vectors that the machine has. ThreadSanitizer
// is not ready when the loader does so, and the program would crash.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define FARANDOLE_WIDEST_VECTORS [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define FARANDOLE_WIDEST_VECTORS
#endif

// In NaNs and infinities, all bits of the exponent are set. The inner loop has a constant length, so that
// it is vectorized.
template <typename Bits>
[[gnu::always_inline]] inline bool has_only_finite(std::span<const std::byte> bytes, Bits exponent) {
  constexpr std::size_t block = 64;
  bool finite = true;
  std::size_t i = 0;
  for (; i + block * sizeof exponent <= bytes.size(); i += block * sizeof exponent) {
    std::array<Bits, block> bits;
    std::memcpy(bits.data(), bytes.data() + i, sizeof bits);
    Bits found = 0;
    for (std::size_t k = 0; k < block; ++k)
      found = static_cast<Bits>(found | ((bits[k] & exponent) == exponent ? Bits(~Bits{0}) : Bits{0}));
    finite &= found == 0;
  }
  for (; i + sizeof exponent <= bytes.size(); i += sizeof exponent) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i, sizeof bits);
    finite &= (bits & exponent) != exponent;
  }
  return finite;
}

template <typename Value>
Value value_at(const std::byte* at) {
  Value value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31  ? (fraction == 0 ? HUGE_VAL : std::nan(""))
                      : exponent == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(fraction + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

}  // namespace

double number_at(const std::byte* at, DType dtype) {
  switch (dtype) {
    case DType::float16:
      return half_value(value_at<std::uint16_t>(at));
    case DType::bfloat16:
      return std::bit_cast<float>(std::uint32_t{value_at<std::uint16_t>(at)} << 16);
    case DType::float32:
      return value_at<float>(at);
    case DType::float64:
      return value_at<double>(at);
    case DType::int32:
      return value_at<std::int32_t>(at);
    case DType::int64:
      return static_cast<double>(value_at<std::int64_t>(at));
    case DType::uint8:
      return value_at<std::uint8_t>(at);
    case DType::boolean:
      return value_at<std::uint8_t>(at) != 0 ? 1 : 0;
    case DType::int8:
      return value_at<std::int8_t>(at);
    case DType::int16:
      return value_at<std::int16_t>(at);
  }
  return std::nan("");
}

FARANDOLE_WIDEST_VECTORS
bool has_only_finite(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::float16:
      return has_only_finite<std::uint16_t>(bytes, 0x7c00);
    case DType::bfloat16:
      return has_only_finite<std::uint16_t>(bytes, 0x7f80);
    case DType::float32:
      return has_only_finite<std::uint32_t>(bytes, 0x7f80'0000);
    case DType::float64:
      return has_only_finite<std::uint64_t>(bytes, 0x7ff0'0000'0000'0000);
    default:
      return true;
  }
}

}  // namespace farandole

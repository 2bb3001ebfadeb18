// Conversions between float and the two 16-bit formats, rounded to nearest even.
// Thread safety: any thread may call this at any time.
#pragma once

#include <bit>
#include <cstdint>

#include "farandole/comm/kernels/device_code.h"

namespace farandole {

struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

FARANDOLE_DEVICE inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

FARANDOLE_DEVICE inline void from_float(float value, BFloat16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    out.bits = static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // a NaN stays a NaN
  else
    out.bits = static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

FARANDOLE_DEVICE inline float to_float(Float16 value) {
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000u} << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Multiplying by 2^112 corrects the exponent and normalizes subnormals in one exact step.
  return std::bit_cast<float>(sign |
                              std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f));
}

FARANDOLE_DEVICE inline void from_float(float value, Float16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;  // NaN
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // would round to more than 65504
  } else if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 aligns the last bit of the half with the last bit of the float,
    // so the addition rounds.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  out.bits = static_cast<std::uint16_t>(sign | half);
}

}  // namespace farandole

// Integers in as few bytes as possible (LEB128; signed integers in zigzag). Pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace farandole {

inline void append_varint(std::vector<std::uint8_t>& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<std::uint8_t>(value | 0x80));
  to.push_back(static_cast<std::uint8_t>(value));
}
inline void append_signed(std::vector<std::uint8_t>& to, std::int64_t value) {
  append_varint(to, static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
}

// Reads what the functions above wrote and moves `at` behind it. The caller must know that
// a value is present.
inline std::uint64_t take_varint(const std::uint8_t*& at) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const std::uint8_t byte = *at++;
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
}
inline std::int64_t take_signed(const std::uint8_t*& at) {
  const auto value = take_varint(at);
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

}  // namespace farandole

#include "farandole/checkpoint/snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace farandole {
namespace {

// In NaNs and infinities, all bits of the exponent are set.
template <typename Bits>
bool has_only_finite(const std::vector<std::byte>& bytes, Bits exponent) {
  bool finite = true;
  for (std::size_t i = 0; i + sizeof exponent <= bytes.size(); i += sizeof exponent) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + i, sizeof bits);
    finite &= (bits & exponent) != exponent;
  }
  return finite;
}

}  // namespace

bool Array::finite() const {
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

std::size_t Array::count() const {
  std::size_t product = 1;
  for (const auto extent : shape) product *= static_cast<std::size_t>(extent);
  return product;
}

SnapshotBuilder::SnapshotBuilder(Snapshot old) {
  snapshot_.arrays = std::move(old.arrays);
}

std::span<std::byte> SnapshotBuilder::add(std::string_view path, DType dtype,
                                          std::span<const std::int64_t> shape) {
  if (used_ == snapshot_.arrays.size()) snapshot_.arrays.emplace_back();
  auto& array = snapshot_.arrays[used_++];
  array.path = path;
  array.dtype = dtype;
  array.shape.assign(shape.begin(), shape.end());
  array.bytes.resize(array.count() * size_of(dtype));
  return array.bytes;
}

void SnapshotBuilder::add_integer(std::string_view path, std::int64_t value) {
  std::memcpy(add(path, DType::int64, {}).data(), &value, sizeof value);
}

Snapshot SnapshotBuilder::finish() {
  snapshot_.arrays.resize(used_);
  return std::move(snapshot_);
}

const Array* Snapshot::find(std::string_view path) const {
  const auto found =
      std::find_if(arrays.begin(), arrays.end(), [&](const Array& array) { return array.path == path; });
  return found == arrays.end() ? nullptr : &*found;
}

}  // namespace farandole

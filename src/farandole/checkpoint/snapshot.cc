#include "farandole/checkpoint/snapshot.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <xxhash.h>

#include "farandole/base/finite.h"

namespace farandole {

// A piece stays in the cache of a core for the second look at it.
Digest digest_of(const Array& array) {
  constexpr std::size_t piece = 128 << 10;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  Digest digest;
  for (std::span<const std::byte> rest = array.bytes; !rest.empty();) {
    const auto here = rest.first(std::min(piece, rest.size()));
    XXH3_64bits_update(state.get(), here.data(), here.size());
    digest.finite &= has_only_finite(here, array.dtype);
    rest = rest.subspan(here.size());
  }
  digest.xxh3 = XXH3_64bits_digest(state.get());
  return digest;
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

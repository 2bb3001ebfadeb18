#include "farandole/checkpoint/snapshot.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#ifdef FARANDOLE_XXHASH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include "farandole/base/dtype.h"

namespace farandole {

Digester::Digester(DType dtype) : dtype_(dtype) {
  auto* const state = XXH3_createState();
  if (state == nullptr) throw std::bad_alloc();
  xxh3_ = std::shared_ptr<void>(state, [](void* own) { XXH3_freeState(static_cast<XXH3_state_t*>(own)); });
  XXH3_64bits_reset(state);
}

void Digester::update(std::span<const std::byte> piece) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(xxh3_.get()), piece.data(), piece.size());
  finite_ &= has_only_finite(piece, dtype_);
}

Digest Digester::result() const {
  return {XXH3_64bits_digest(static_cast<const XXH3_state_t*>(xxh3_.get())), finite_};
}

Digest digest_of(const Array& array) {
  Digester digester(array.dtype);
  for (std::span<const std::byte> rest = array.bytes; !rest.empty();) {
    const auto piece = rest.first(std::min(Digester::piece_bytes, rest.size()));
    digester.update(piece);
    rest = rest.subspan(piece.size());
  }
  return digester.result();
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

#include "farandole/checkpoint/snapshot.h"

#include <algorithm>

namespace farandole {

std::size_t Array::count() const {
  std::size_t product = 1;
  for (const auto extent : shape) product *= static_cast<std::size_t>(extent);
  return product;
}

const Array* Snapshot::find(std::string_view path) const {
  const auto found =
      std::find_if(arrays.begin(), arrays.end(), [&](const Array& array) { return array.path == path; });
  return found == arrays.end() ? nullptr : &*found;
}

}  // namespace farandole

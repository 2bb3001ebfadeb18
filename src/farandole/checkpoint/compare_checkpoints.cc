#include "farandole/checkpoint/compare_checkpoints.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <map>
#include <optional>

#include "farandole/checkpoint/checkpoint_file.h"

namespace farandole {
namespace {

std::string type_of(const Array& array) {
  return fmt::format("{} [{}]", name_of(array.dtype), fmt::join(array.shape, ", "));
}

// std::nullopt if all bits are equal.
std::optional<ArrayDifference> compare_values(const Array& a, const Array& b) {
  ArrayDifference found{a.path, "", a.count(), 0, 0};
  const auto step = size_of(a.dtype);
  for (std::size_t at = 0; at < a.bytes.size(); at += step) {
    if (std::memcmp(a.bytes.data() + at, b.bytes.data() + at, step) == 0) continue;
    ++found.different;
    const double distance =
        std::abs(number_at(a.bytes.data() + at, a.dtype) - number_at(b.bytes.data() + at, b.dtype));
    if (std::isnan(distance) || distance > found.largest) found.largest = distance;
  }
  return found.different > 0 ? std::optional(found) : std::nullopt;
}

}  // namespace

std::vector<ArrayDifference> compare_checkpoints(const std::filesystem::path& first,
                                                 const std::filesystem::path& second) {
  constexpr auto nowhere = std::numeric_limits<std::size_t>::max();
  const CheckpointReader a(first), b(second);
  std::map<std::string, std::pair<std::size_t, std::size_t>> places;
  for (std::size_t i = 0; i < a.header().arrays.size(); ++i)
    places.emplace(a.header().arrays[i].path, std::pair(i, nowhere));
  for (std::size_t i = 0; i < b.header().arrays.size(); ++i)
    places.emplace(b.header().arrays[i].path, std::pair(nowhere, nowhere)).first->second.second = i;
  std::vector<ArrayDifference> found;
  for (const auto& [path, place] : places) {
    const auto [in_a, in_b] = place;
    if (in_a == nowhere || in_b == nowhere) {
      found.push_back({path, in_a == nowhere ? "only in the second" : "only in the first"});
      continue;
    }
    const auto &array = a.header().arrays[in_a], &other = b.header().arrays[in_b];
    if (array.dtype != other.dtype || array.shape != other.shape)
      found.push_back({path, type_of(array) + " and " + type_of(other)});
    else if (auto difference = compare_values(a.read(in_a), b.read(in_b)))
      found.push_back(std::move(*difference));
  }
  return found;
}

}  // namespace farandole

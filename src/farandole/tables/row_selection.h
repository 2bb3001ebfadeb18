// Some of the rows of a table, chosen by a pure function of the row's number: no list of rows is kept,
// whatever their number.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace farandole {

class RowSelection {
 public:
  RowSelection() = default;  // All rows.
  explicit RowSelection(std::function<bool(std::int64_t)> chosen) : chosen_(std::move(chosen)) {}

  bool contains(std::int64_t row) const { return !chosen_ || chosen_(row); }
  bool all() const { return !chosen_; }
  std::int64_t count(std::int64_t first, std::int64_t end) const;  // Rows of [first, end) that are chosen.

 private:
  std::function<bool(std::int64_t)> chosen_;
};

// Splits n rows at random into parts with these fractions of the rows, which add up to 1. Each row is in
// exactly one part; the sizes are exact except for rounding, and the same seed gives the same parts.
// Throws: UserError if a fraction is not between 0 and 1, if they do not add up to 1, or if a part
// would be empty.
std::vector<RowSelection> random_split(std::int64_t rows, std::span<const double> fractions,
                                       std::uint64_t seed);

}  // namespace farandole

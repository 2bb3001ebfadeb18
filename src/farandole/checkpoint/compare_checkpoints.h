// What differs between two checkpoints.
// Thread safety: any thread may call this at any time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace farandole {

// An array that is not the same in both files.
struct ArrayDifference {
  std::string path;
  // "only in the first", "only in the second", or both types and shapes; empty: the values differ.
  std::string kind;
  std::size_t elements = 0;   // of the array, if the values differ
  std::size_t different = 0;  // elements with other bits
  double largest = 0;         // absolute difference; NaN if one of the numbers is a NaN
};

// In the order of their paths. Needs memory for the largest array of each file.
// Throws: as read_checkpoint().
std::vector<ArrayDifference> compare_checkpoints(const std::filesystem::path& first,
                                                 const std::filesystem::path& second);

}  // namespace farandole

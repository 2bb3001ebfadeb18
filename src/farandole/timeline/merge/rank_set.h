// A set of ranks in the form that people write: "0,3-5". A plain value.
// Thread safety: const methods may run concurrently; others need external synchronization.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace farandole {

class RankSet {
 public:
  RankSet() = default;                          // all ranks
  static RankSet parse(std::string_view text);  // throws UserError if the text has another form
  bool contains(int rank) const;
  bool all() const { return ranges_.empty(); }

 private:
  std::vector<std::pair<int, int>> ranges_;  // first and last rank of each range
};

}  // namespace farandole

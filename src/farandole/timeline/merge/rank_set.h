// Ranks as people name them: "0,3-5". Plain values.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace farandole {

class RankSet {
 public:
  RankSet() = default;                          // all
  static RankSet parse(std::string_view text);  // throws UserError
  bool contains(int rank) const;
  bool all() const { return ranges_.empty(); }

 private:
  std::vector<std::pair<int, int>> ranges_;  // first and last
};

}  // namespace farandole

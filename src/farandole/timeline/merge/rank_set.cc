#include "farandole/timeline/merge/rank_set.h"

#include <algorithm>
#include <string>

#include "farandole/base/error.h"
#include "farandole/base/parse_number.h"

namespace farandole {

RankSet RankSet::parse(std::string_view text) {
  const auto wrong = [&] {
    return UserError("ranks '" + std::string(text) + "' cannot be read; give for example 0,3-5, or all");
  };
  const auto number = [&](std::string_view digits) {
    const auto value = parse_number<int>(digits);
    if (!value || *value < 0) throw wrong();
    return *value;
  };
  RankSet ranks;
  if (text == "all") return ranks;
  for (std::string_view rest = text;;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    const std::size_t dash = part.find('-');
    const int first = number(part.substr(0, std::min(dash, part.size())));
    const int last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    if (last < first) throw wrong();
    ranks.ranges_.emplace_back(first, last);
    if (comma == rest.size()) return ranks;
    rest.remove_prefix(comma + 1);
  }
}

bool RankSet::contains(int rank) const {
  return all() || std::any_of(ranges_.begin(), ranges_.end(), [rank](const auto& range) {
           return rank >= range.first && rank <= range.second;
         });
}

}  // namespace farandole

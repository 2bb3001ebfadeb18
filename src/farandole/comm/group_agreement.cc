#include "farandole/comm/group_agreement.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/text/phrases.h"
#include "farandole/comm/agreement.h"

namespace farandole {

void check_group(std::span<const int> ranks, int size) {
  if (ranks.empty()) throw UserError("a group has no ranks; name at least one");
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  for (const int bad : {sorted.front(), sorted.back()})
    if (bad < 0 || bad >= size)
      throw UserError(
          fmt::format("a group names rank {}, but the job has only ranks 0 to {}", bad, size - 1));
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    throw UserError(fmt::format("a group names rank {} twice", *twice));
}

void check_group_agreement(Communicator& everyone, std::span<const int> ranks) {
  std::string table;
  for (const auto& list :
       find_disagreements(everyone, "ranks of group", fmt::format("[{}]", fmt::join(ranks, ", "))))
    for (const auto& [text, who] : list.variants)
      table += fmt::format("\n  {:<18} group of ranks {}", describe_ranks(who), text);
  if (!table.empty())
    throw UserError(
        "the ranks give different lists for the same group; every rank of the job must give the same list:" +
        table);
  check_group(ranks, everyone.size);
}

}  // namespace farandole

#include "farandole/comm/group_agreement.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "farandole/base/error.h"

namespace farandole {
namespace {

using Ranks = std::vector<int>;

std::vector<Ranks> gather(Communicator& everyone, std::span<const int> own) {
  const auto size = static_cast<std::size_t>(everyone.size);
  const std::size_t bytes = own.size_bytes();
  std::vector<std::size_t> bytes_by_rank(size);
  const std::vector<std::size_t> one(size, sizeof bytes);
  everyone.all_gather("size of group", &bytes, bytes_by_rank.data(), one);
  Ranks all(sum(bytes_by_rank) / sizeof(int));
  everyone.all_gather("ranks of group", own.data(), all.data(), bytes_by_rank);
  std::vector<Ranks> by_rank;
  auto first = all.cbegin();
  for (const auto length : bytes_by_rank) {
    const auto last = first + static_cast<std::ptrdiff_t>(length / sizeof(int));
    by_rank.emplace_back(first, last);
    first = last;
  }
  return by_rank;
}

std::string table_of_differences(const std::vector<Ranks>& by_rank) {
  std::vector<std::pair<Ranks, Ranks>> variants;  // list, ranks that give it
  for (std::size_t r = 0; r < by_rank.size(); ++r) {
    auto found = std::find_if(variants.begin(), variants.end(),
                              [&](const auto& variant) { return variant.first == by_rank[r]; });
    if (found == variants.end()) found = variants.insert(variants.end(), {by_rank[r], {}});
    found->second.push_back(static_cast<int>(r));
  }
  std::string table;
  for (const auto& [list, who] : variants)
    table += fmt::format("\n  {} {:<12} group of ranks [{}]", who.size() > 1 ? "ranks" : "rank ",
                         fmt::format("{}", fmt::join(who, ",")), fmt::join(list, ", "));
  return table;
}

}  // namespace

void check_group(std::span<const int> ranks, int size) {
  if (ranks.empty()) throw UserError("a group has no ranks; name at least one");
  Ranks sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  for (const int bad : {sorted.front(), sorted.back()})
    if (bad < 0 || bad >= size)
      throw UserError(
          fmt::format("a group names rank {}, but the job has only ranks 0 to {}", bad, size - 1));
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    throw UserError(fmt::format("a group names rank {} twice", *twice));
}

void check_group_agreement(Communicator& everyone, std::span<const int> ranks) {
  const auto by_rank = gather(everyone, ranks);
  if (std::any_of(by_rank.begin(), by_rank.end(), [&](const auto& other) { return other != by_rank[0]; }))
    throw UserError(
        "the ranks give different lists for the same group; every rank of the job must give the same list:" +
        table_of_differences(by_rank));
  check_group(ranks, everyone.size);
}

}  // namespace farandole

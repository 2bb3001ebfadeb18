#include "farandole/comm/agreement.h"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>
#include <string>
#include <vector>
#include <xxhash.h>

#include "farandole/base/error.h"
#include "farandole/base/text/phrases.h"

namespace farandole {
namespace {

std::vector<std::vector<std::string>> gather_lines(Communicator& communicator, std::string_view what,
                                                   const std::string& own) {
  const auto size = static_cast<std::size_t>(communicator.size);
  const std::size_t length = own.size();
  std::vector<std::size_t> lengths(size);
  const std::vector<std::size_t> one(size, sizeof length);
  communicator.all_gather(fmt::format("length of {}", what), &length, lengths.data(), one);
  std::string all(sum(lengths), '\0');
  communicator.all_gather(what, own.data(), all.data(), lengths);
  std::vector<std::vector<std::string>> by_rank;
  std::size_t first = 0;
  for (const auto bytes : lengths) {
    std::istringstream stream(all.substr(first, bytes));
    first += bytes;
    auto& lines = by_rank.emplace_back();
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
  }
  return by_rank;
}

}  // namespace

std::vector<Disagreement> find_disagreements(Communicator& communicator, std::string_view what,
                                             const std::string& text) {
  const std::int64_t hash = static_cast<std::int64_t>(XXH3_64bits(text.data(), text.size()) >> 1);
  std::int64_t extremes[2] = {hash, -hash};
  communicator.allreduce(fmt::format("hash of {}", what), extremes, 2, DType::int64, ReduceOp::max);
  std::vector<Disagreement> found;
  if (extremes[0] == -extremes[1]) return found;
  const auto by_rank = gather_lines(communicator, what, text);
  std::size_t longest = 0;
  for (const auto& lines : by_rank) longest = std::max(longest, lines.size());
  for (std::size_t i = 0; i < longest; ++i) {
    Disagreement here{i, {}};
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
      const auto line = i < by_rank[r].size() ? by_rank[r][i] : "(none)";
      auto variant = std::find_if(here.variants.begin(), here.variants.end(),
                                  [&](const auto& v) { return v.text == line; });
      if (variant == here.variants.end()) variant = here.variants.insert(variant, {line, {}});
      variant->ranks.push_back(static_cast<int>(r));
    }
    if (here.variants.size() > 1) found.push_back(std::move(here));
  }
  return found;
}

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

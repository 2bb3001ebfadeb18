#include "farandole/analyzer/model/rank_checks.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace farandole {
namespace {

std::string list_of(const std::vector<std::int64_t>& ranks) {
  const std::size_t shown = std::min<std::size_t>(ranks.size(), 8);
  const std::vector<std::int64_t> first(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(shown));
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(first, ", "),
                     ranks.size() > shown ? fmt::format(" and {} more", ranks.size() - shown) : "");
}

void name_missing_and_foreign_ranks(RunModel& model) {
  const auto expected = model.facts.ranks ? model.facts.ranks : model.header.ranks;
  if (!expected) return;
  if (model.facts.ranks && model.header.ranks && *model.facts.ranks != *model.header.ranks)
    model.warnings.push_back(
        fmt::format("run.json has {} ranks, and the trace has {}; they may belong to different runs",
                    *model.facts.ranks, *model.header.ranks));
  std::vector<std::int64_t> missing, foreign;
  std::int64_t next = 0;
  for (const auto& rank : model.ranks) {
    for (; next < std::min<std::int64_t>(rank.rank, *expected) && missing.size() < 100'000; ++next)
      missing.push_back(next);
    next = std::max<std::int64_t>(next, rank.rank + std::int64_t{1});
    if (rank.rank >= *expected) foreign.push_back(rank.rank);
  }
  for (; next < *expected && missing.size() < 100'000; ++next) missing.push_back(next);
  if (!missing.empty())
    model.warnings.push_back(
        fmt::format("the trace has no events of {} (of {})", list_of(missing), *expected));
  if (!foreign.empty())
    model.warnings.push_back(
        fmt::format("the trace has {}, but the run has only {}; the trace may belong to another run",
                    list_of(foreign), *expected));
}

void settle_hosts(RunModel& model) {
  for (auto& rank : model.ranks) {
    const auto index = static_cast<std::size_t>(rank.rank);
    if (index >= model.facts.hosts.size()) continue;
    const auto& host = model.facts.hosts[index];
    if (rank.host.empty())
      rank.host = host;
    else if (rank.host != host && !host.empty())
      model.warnings.push_back(fmt::format(
          "rank {} ran on {} according to the trace and on {} according to run.json; they may belong to "
          "different runs",
          rank.rank, rank.host, host));
  }
}

}  // namespace

void check_ranks(RunModel& model) {
  name_missing_and_foreign_ranks(model);
  settle_hosts(model);
}

}  // namespace farandole

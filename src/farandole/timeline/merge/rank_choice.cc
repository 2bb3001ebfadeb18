#include "farandole/timeline/merge/rank_choice.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>

#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

// The index of the rank with the largest sum of delays after the first arrival at the same collectives.
std::size_t slowest_of(std::span<const RankTimeline> ranks) {
  std::unordered_map<std::uint64_t, std::int64_t> first;
  const auto each = [&](auto visit) {
    for (std::size_t i = 0; i < ranks.size(); ++i)
      for (const Meeting& meeting : ranks[i].records->info().meetings)
        visit(i, meeting.key, ranks[i].clock.to_reference(meeting.start_ns));
  };
  each([&](std::size_t, std::uint64_t key, std::int64_t arrival_ns) {
    const auto [found, fresh] = first.emplace(key, arrival_ns);
    if (!fresh) found->second = std::min(found->second, arrival_ns);
  });
  std::vector<double> lateness(ranks.size());
  std::vector<double> meetings(ranks.size());
  each([&](std::size_t rank, std::uint64_t key, std::int64_t arrival_ns) {
    lateness[rank] += static_cast<double>(arrival_ns - first[key]);
    ++meetings[rank];
  });
  std::size_t slowest = ranks.size();
  double most = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (meetings[i] > 0 && lateness[i] / meetings[i] > most) {
      most = lateness[i] / meetings[i];
      slowest = i;
    }
  return slowest;
}

}  // namespace

RankChoice choose_ranks(std::span<const RankTimeline> ranks, std::size_t limit) {
  RankChoice choice;
  choice.chosen.resize(ranks.size());
  std::iota(choice.chosen.begin(), choice.chosen.end(), 0);
  if (limit == 0 || ranks.size() <= limit) return choice;
  const auto rank_of = [&](std::size_t i) { return ranks[i].records->info().rank; };
  std::sort(choice.chosen.begin(), choice.chosen.end(),
            [&](std::size_t a, std::size_t b) { return rank_of(a) < rank_of(b); });
  const std::vector<std::size_t> by_rank = choice.chosen;
  std::set<std::size_t> chosen{by_rank.front()};
  if (limit > 1) chosen.insert(by_rank.back());
  const std::size_t slowest = slowest_of(ranks);
  if (slowest < ranks.size() && chosen.size() < limit) chosen.insert(slowest);
  // Evenly spaced ranks first; then ranks from the start, if some of the evenly spaced
  // ones were already chosen.
  const std::size_t room = limit - chosen.size();
  for (std::size_t i = 1; i <= room; ++i) chosen.insert(by_rank[i * (by_rank.size() - 1) / (room + 1)]);
  for (std::size_t i = 0; chosen.size() < limit; ++i) chosen.insert(by_rank[i]);
  choice.chosen.assign(chosen.begin(), chosen.end());
  if (slowest < ranks.size() && chosen.contains(slowest)) choice.slowest = rank_of(slowest);
  return choice;
}

std::string left_out_text(std::span<const RankTimeline> ranks, const RankChoice& choice) {
  if (choice.chosen.size() == ranks.size()) return "";
  const std::size_t named = choice.slowest >= 0 ? 3 : 2;
  return fmt::format(
      "the timeline shows {} of {} ranks: the first{}{}{}; each rank's recorder has the rest (farandole "
      "timeline "
      "slice --ranks, or merge --merge-limit)",
      choice.chosen.size(), ranks.size(), choice.chosen.size() > 1 ? ", the last" : "",
      choice.slowest >= 0 ? fmt::format(", rank {}, which the others waited for longest", choice.slowest)
                          : "",
      choice.chosen.size() > named ? ", and a sample" : "");
}

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

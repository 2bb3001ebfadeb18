#include "farandole/timeline/clock_refinement.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace farandole {
namespace {

struct Visit {
  std::uint64_t key;
  std::size_t rank;
  Meeting meeting;  // on the rank's own clock
};

// By meeting, so that those of all ranks lie together.
std::vector<Visit> visits_of(std::span<const RankClock> ranks) {
  std::vector<Visit> visits;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const Meeting& meeting : ranks[rank].meetings) visits.push_back({meeting.key, rank, meeting});
  std::sort(visits.begin(), visits.end(),
            [](const Visit& a, const Visit& b) { return std::tie(a.key, a.rank) < std::tie(b.key, b.rank); });
  return visits;
}

// Calls use(a, b) for each pair of ranks' visits to one meeting, both ways.
template <typename Use>
void each_pair(const std::vector<Visit>& visits, Use use) {
  for (auto group = visits.begin(); group != visits.end();) {
    auto end = group;
    while (end != visits.end() && end->key == group->key) ++end;
    for (auto a = group; a != end; ++a)
      for (auto b = group; b != end; ++b)
        if (a->rank != b->rank) use(*a, *b);
    group = end;
  }
}

// On the reference's clock: how long after b's arrival a left. Negative: before it.
std::int64_t margin_ns(std::span<const RankClock> ranks, const Visit& a, const Visit& b) {
  return ranks[a.rank].model.to_reference(a.meeting.end_ns) -
         ranks[b.rank].model.to_reference(b.meeting.start_ns);
}

// Visits of known ranks bound an unknown clock from both sides; the middle between the bounds errs least.
void find_unknown(std::span<RankClock> ranks, const std::vector<Visit>& visits) {
  constexpr std::int64_t none = std::int64_t{1} << 60;
  struct Range {
    std::int64_t low = -none, high = none;
  };
  std::vector<Range> shifts(ranks.size());
  const auto residual = [&](const Visit& visit) { return ranks[visit.rank].model.residual_ns(); };
  each_pair(visits, [&](const Visit& a, const Visit& b) {
    if (!ranks[a.rank].known && ranks[b.rank].known)
      shifts[a.rank].low = std::max(shifts[a.rank].low, -margin_ns(ranks, a, b) - residual(b));
    if (ranks[a.rank].known && !ranks[b.rank].known)
      shifts[b.rank].high = std::min(shifts[b.rank].high, margin_ns(ranks, a, b) + residual(a));
  });
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [low, high] = shifts[rank];
    if (ranks[rank].known || low == -none || high == none) continue;
    const double middle = static_cast<double>(low) + static_cast<double>(high - low) / 2;
    ranks[rank].model = ranks[rank].model.shifted(0, middle, 0, middle, std::abs(high - low) / 2 + 1);
    ranks[rank].known = true;
  }
}

// The shift of a rank at its first and last meeting, and a line in between.
struct Line {
  std::int64_t first_ns = 0;
  std::int64_t last_ns = 0;
  double first_shift_ns = 0;
  double last_shift_ns = 0;
  double limit_ns = 0;

  double part(std::int64_t at_ns) const {  // how much the end counts
    return last_ns > first_ns
               ? static_cast<double>(at_ns - first_ns) / static_cast<double>(last_ns - first_ns)
               : 0;
  }
  double at(double end_part) const { return first_shift_ns * (1 - end_part) + last_shift_ns * end_part; }
  double weight(double end_part) const {
    return limit_ns > 0 ? (1 - end_part) * (1 - end_part) + end_part * end_part : 0;
  }
  void move(double end_part, double by_ns) {
    if (limit_ns <= 0) return;
    first_shift_ns = std::clamp(first_shift_ns + by_ns * (1 - end_part), -limit_ns, limit_ns);
    last_shift_ns = std::clamp(last_shift_ns + by_ns * end_part, -limit_ns, limit_ns);
  }
};

// A pair of visits whose order the residuals leave open: margin + shift of a − shift of b is to be ≥ 0.
struct Constraint {
  std::size_t a, b;
  double a_part, b_part;
  double margin_ns;
};

// Projects the shifts onto one broken constraint after the other (Agmon; Motzkin and Schoenberg 1954: that
// converges where there is a solution), a nanosecond beyond, which rounding may take.
void solve(const std::vector<Constraint>& constraints, std::vector<Line>& lines) {
  constexpr int most_rounds = 300;
  constexpr double beyond_ns = 2;
  bool broken = true;
  for (int round = 0; round < most_rounds && broken; ++round) {
    broken = false;
    for (const Constraint& c : constraints) {
      const double margin = c.margin_ns + lines[c.a].at(c.a_part) - lines[c.b].at(c.b_part);
      const double weight = lines[c.a].weight(c.a_part) + lines[c.b].weight(c.b_part);
      if (margin >= 1 || weight <= 0) continue;
      broken = true;
      const double by_ns = (beyond_ns - margin) / weight;
      lines[c.a].move(c.a_part, by_ns);
      lines[c.b].move(c.b_part, -by_ns);
    }
  }
}

}  // namespace

std::uint64_t refine_clocks(std::span<RankClock> ranks) {
  if (ranks.size() < 2) return 0;
  const std::vector<Visit> visits = visits_of(ranks);
  const auto known =
      std::find_if(ranks.begin(), ranks.end(), [](const RankClock& rank) { return rank.known; });
  const auto reference = static_cast<std::size_t>(known != ranks.end() ? known - ranks.begin() : 0);
  const bool was_known = std::exchange(ranks[reference].known, true);
  find_unknown(ranks, visits);

  std::vector<Line> lines(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].meetings.empty() || !ranks[rank].known) continue;
    const auto [first, last] =
        std::minmax_element(ranks[rank].meetings.begin(), ranks[rank].meetings.end(),
                            [](const Meeting& a, const Meeting& b) { return a.start_ns < b.start_ns; });
    const double limit = rank == reference ? 0 : static_cast<double>(ranks[rank].model.residual_ns());
    lines[rank] = {first->start_ns, last->start_ns, 0, 0, limit};
  }
  std::vector<Constraint> constraints;
  each_pair(visits, [&](const Visit& a, const Visit& b) {
    const double slack = lines[a.rank].limit_ns + lines[b.rank].limit_ns;
    const auto margin = static_cast<double>(margin_ns(ranks, a, b));
    if (std::abs(margin) <= slack)
      constraints.push_back({a.rank, b.rank, lines[a.rank].part(a.meeting.end_ns),
                             lines[b.rank].part(b.meeting.start_ns), margin});
  });
  solve(constraints, lines);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Line& line = lines[rank];
    const double shift = std::max(std::abs(line.first_shift_ns), std::abs(line.last_shift_ns));
    if (shift > 0)
      ranks[rank].model =
          ranks[rank].model.shifted(line.first_ns, line.first_shift_ns, line.last_ns, line.last_shift_ns,
                                    ranks[rank].model.residual_ns() + std::llround(std::ceil(shift)));
  }
  ranks[reference].known = was_known;
  std::uint64_t broken = 0;
  each_pair(visits, [&](const Visit& a, const Visit& b) { broken += margin_ns(ranks, a, b) < 0; });
  return broken;
}

}  // namespace farandole

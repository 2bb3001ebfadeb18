#include "farandole/timeline/merge/clock_refinement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>
#include <utility>

namespace farandole {
namespace {

struct Visit {
  Meeting meeting;  // on the rank's own clock
  std::uint32_t rank;
};

// All visits, sorted by meeting, so that the visits of all ranks to a meeting are contiguous.
std::vector<Visit> visits_of(std::span<const RankClock> ranks) {
  std::vector<Visit> visits;
  visits.reserve(std::accumulate(ranks.begin(), ranks.end(), std::size_t{0},
                                 [](auto sum, const RankClock& rank) { return sum + rank.meetings.size(); }));
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank)
    for (const Meeting& meeting : ranks[rank].meetings) visits.push_back({meeting, rank});
  std::sort(visits.begin(), visits.end(), [](const Visit& a, const Visit& b) {
    return std::tie(a.meeting.key, a.rank) < std::tie(b.meeting.key, b.rank);
  });
  return visits;
}

using Visits = std::span<const Visit>;

// Calls use(visits) once per meeting, with the visits of that meeting.
template <typename Use>
void each_meeting(const std::vector<Visit>& visits, Use use) {
  for (auto group = visits.begin(); group != visits.end();) {
    auto end = group;
    while (end != visits.end() && end->meeting.key == group->meeting.key) ++end;
    use(Visits(group, end));
    group = end;
  }
}

std::int64_t start_of(std::span<const RankClock> ranks, const Visit& visit) {
  return ranks[visit.rank].model.to_reference(visit.meeting.start_ns);
}
std::int64_t end_of(std::span<const RankClock> ranks, const Visit& visit) {
  return ranks[visit.rank].model.to_reference(visit.meeting.end_ns);
}

// Visits of known ranks bound an unknown clock from both sides. The middle between the bounds
// minimizes the largest error.
void find_unknown(std::span<RankClock> ranks, const std::vector<Visit>& visits) {
  constexpr std::int64_t none = std::int64_t{1} << 60;
  struct Range {
    std::int64_t low = -none, high = none;
  };
  std::vector<Range> shifts(ranks.size());
  each_meeting(visits, [&](Visits meeting) {
    std::int64_t last_start = -none, first_end = none;  // of the known clocks
    for (const Visit& visit : meeting) {
      if (!ranks[visit.rank].known) continue;
      const auto residual = ranks[visit.rank].model.residual_ns();
      last_start = std::max(last_start, start_of(ranks, visit) - residual);
      first_end = std::min(first_end, end_of(ranks, visit) + residual);
    }
    if (last_start == -none) return;
    for (const Visit& visit : meeting) {
      auto& shift = shifts[visit.rank];
      shift.low = std::max(shift.low, last_start - end_of(ranks, visit));
      shift.high = std::min(shift.high, first_end - start_of(ranks, visit));
    }
  });
  std::map<int, Range> of_clock;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].clock < 0) continue;
    auto& all = of_clock[ranks[rank].clock];
    all = {std::max(all.low, shifts[rank].low), std::min(all.high, shifts[rank].high)};
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [low, high] = ranks[rank].clock < 0 ? shifts[rank] : of_clock[ranks[rank].clock];
    if (ranks[rank].known || low == -none || high == none) continue;
    const double middle = static_cast<double>(low) + static_cast<double>(high - low) / 2;
    ranks[rank].model = ranks[rank].model.shifted(0, middle, 0, middle, std::abs(high - low) / 2 + 1);
    ranks[rank].known = true;
  }
}

// The shift of a rank at its first and last meeting, interpolated linearly between them and constant
// elsewhere. It changes no faster than an oscillator drifts, so that two meetings with a short time between
// them do not make it steep.
struct Line {
  std::int64_t first_ns = 0;
  std::int64_t last_ns = 0;
  double first_shift_ns = 0;
  double last_shift_ns = 0;
  double limit_ns = 0;

  double part(std::int64_t at_ns) const {  // weight of the last meeting's shift
    return last_ns > first_ns ? static_cast<double>(std::clamp(at_ns, first_ns, last_ns) - first_ns) /
                                    static_cast<double>(last_ns - first_ns)
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
    const double change = last_shift_ns - first_shift_ns;
    const double excess = std::abs(change) - usual_drift * static_cast<double>(last_ns - first_ns);
    if (excess <= 0) return;
    first_shift_ns += std::copysign(excess / 2, change);
    last_shift_ns -= std::copysign(excess / 2, change);
  }
};

// A visit on the reference's clock before shifting. Times are relative to the meeting's earliest start.
struct Stay {
  double start_ns, end_ns;
  double start_part, end_part;  // weight of the last meeting's shift at these times
  std::uint32_t rank;
};

// The meetings whose order is uncertain within the residuals. In each meeting, the
// latest arrival comes first.
struct OpenMeetings {
  std::vector<Stay> stays;
  std::vector<std::size_t> begins;

  std::size_t size() const { return begins.size(); }
  std::span<const Stay> operator[](std::size_t i) const {
    const std::size_t end = i + 1 < begins.size() ? begins[i + 1] : stays.size();
    return {stays.data() + begins[i], end - begins[i]};
  }
};

OpenMeetings open_meetings(std::span<const RankClock> ranks, const std::vector<Visit>& visits,
                           const std::vector<Line>& lines) {
  OpenMeetings open;
  open.stays.reserve(visits.size());
  each_meeting(visits, [&](Visits meeting) {
    const std::size_t begin = open.stays.size();
    const std::int64_t origin = start_of(ranks, meeting.front());
    double first_end = std::numeric_limits<double>::infinity(), last_start = -first_end, slack = 0;
    for (const Visit& visit : meeting) {
      const Line& line = lines[visit.rank];
      const Stay stay{static_cast<double>(start_of(ranks, visit) - origin),
                      static_cast<double>(end_of(ranks, visit) - origin), line.part(visit.meeting.start_ns),
                      line.part(visit.meeting.end_ns), visit.rank};
      first_end = std::min(first_end, stay.end_ns - line.limit_ns);
      last_start = std::max(last_start, stay.start_ns + line.limit_ns);
      slack = std::max(slack, line.limit_ns);
      open.stays.push_back(stay);
    }
    if (slack <= 0 || first_end > last_start) return open.stays.resize(begin);
    open.begins.push_back(begin);
    std::sort(open.stays.begin() + static_cast<std::ptrdiff_t>(begin), open.stays.end(),
              [](const Stay& a, const Stay& b) { return a.start_ns > b.start_ns; });
  });
  return open;
}

// Projects the shifts onto one violated order after the other, plus a nanosecond for rounding. This
// converges if there is a solution (Agmon; Motzkin and Schoenberg 1954). If a rank violates several
// orders in a meeting, only the one with the last arrival is used, so that a round takes time linear in
// the number of visits.
class Solver {
 public:
  explicit Solver(std::vector<Line>& lines) : lines_(lines) {}

  void solve(const OpenMeetings& meetings) {
    constexpr int most_rounds = 300;
    bool broken = true;
    for (int round = 0; round < most_rounds && broken; ++round) {
      broken = false;
      for (std::size_t i = 0; i < meetings.size(); ++i) broken = mend(meetings[i]) || broken;
    }
  }

 private:
  using Stays = std::span<const Stay>;

  double start(const Stay& stay) const { return stay.start_ns + lines_[stay.rank].at(stay.start_part); }
  // True if the residuals can explain the violation. Otherwise no clock is wrong; for
  // example, a collective failed.
  bool may_be_mended(const Stay& a, const Stay& b) const {
    return a.end_ns - b.start_ns >= -(lines_[a.rank].limit_ns + lines_[b.rank].limit_ns);
  }

  // Returns whether an order was violated.
  bool mend(Stays stays) {
    const Stay* latest = &stays.front();
    for (const Stay& stay : stays)
      if (start(stay) > start(*latest)) latest = &stay;
    const Stay* second = nullptr;
    for (const Stay& stay : stays)
      if (stay.rank != latest->rank && (second == nullptr || start(stay) > start(*second))) second = &stay;
    bool broken = false;
    for (const Stay& a : stays) {
      const Stay* b = a.rank != latest->rank ? latest : second;
      if (b != nullptr && !may_be_mended(a, *b)) b = first_to_mend(a, stays);
      if (b != nullptr) broken = push_apart(a, *b) || broken;
    }
    return broken;
  }

  const Stay* first_to_mend(const Stay& a, Stays stays) const {
    constexpr std::size_t most = 64;  // limits the search in an inconsistent meeting
    for (const Stay& b : stays.first(std::min(most, stays.size())))
      if (b.rank != a.rank && may_be_mended(a, b)) return &b;
    return nullptr;
  }

  bool push_apart(const Stay& a, const Stay& b) {
    constexpr double beyond_ns = 2;
    Line& line_a = lines_[a.rank];
    Line& line_b = lines_[b.rank];
    const double margin = a.end_ns + line_a.at(a.end_part) - start(b);
    const double weight = line_a.weight(a.end_part) + line_b.weight(b.start_part);
    if (margin >= 1 || weight <= 0) return false;
    const double by_ns = (beyond_ns - margin) / weight;
    line_a.move(a.end_part, by_ns);
    line_b.move(b.start_part, -by_ns);
    return true;
  }

  std::vector<Line>& lines_;
};

// Counts the pairs of visits of which one ended before the other began.
std::uint64_t count_broken(std::span<const RankClock> ranks, const std::vector<Visit>& visits) {
  std::uint64_t broken = 0;
  std::vector<std::int64_t> starts, ends;
  each_meeting(visits, [&](Visits meeting) {
    starts.clear();
    ends.clear();
    std::uint64_t backwards = 0;  // visits of one rank that end before they begin; they are not pairs
    for (const Visit& visit : meeting) {
      starts.push_back(start_of(ranks, visit));
      ends.push_back(end_of(ranks, visit));
      backwards += ends.back() < starts.back();
    }
    if (*std::min_element(ends.begin(), ends.end()) >= *std::max_element(starts.begin(), starts.end()))
      return;
    std::sort(starts.begin(), starts.end());
    for (const auto end : ends)
      broken +=
          static_cast<std::uint64_t>(starts.end() - std::upper_bound(starts.begin(), starts.end(), end));
    broken -= backwards;
  });
  return broken;
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
  Solver(lines).solve(open_meetings(ranks, visits, lines));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Line& line = lines[rank];
    const double shift = std::max(std::abs(line.first_shift_ns), std::abs(line.last_shift_ns));
    if (shift > 0)
      ranks[rank].model =
          ranks[rank].model.shifted(line.first_ns, line.first_shift_ns, line.last_ns, line.last_shift_ns,
                                    ranks[rank].model.residual_ns() + std::llround(std::ceil(shift)));
  }
  ranks[reference].known = was_known;
  return count_broken(ranks, visits);
}

namespace {

// Broadcast is not among them, because its root may leave before another rank has entered it.
constexpr std::array<std::string_view, 5> synchronising = {"allreduce", "all_gather", "reduce_scatter",
                                                           "all_to_all", "barrier"};

}  // namespace

Meetings::Meetings(std::span<const std::string> names, std::size_t most) : most_(most) {
  for (const std::string& name : names)
    synchronises_.push_back(std::find(synchronising.begin(), synchronising.end(), name) !=
                            synchronising.end());
}

void Meetings::add(const Record& record) {
  const Collective collective = record.collective();
  if (!synchronises_.at(record.operation) || collective.sequence % stride_ != 0) return;
  if (meetings_.size() >= most_) {
    // Many groups of ranks can have a collective with the same number, which no stride separates.
    if (stride_ > UINT32_MAX) return;
    stride_ *= 2;
    std::erase_if(meetings_,
                  [this](const Meeting& meeting) { return (meeting.key & UINT32_MAX) % stride_ != 0; });
    return add(record);
  }
  meetings_.push_back(
      {std::uint64_t{collective.communicator} << 32 | collective.sequence, record.start_ns, record.end_ns});
}

}  // namespace farandole

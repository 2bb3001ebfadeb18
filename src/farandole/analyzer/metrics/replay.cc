#include "farandole/analyzer/metrics/replay.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace farandole {
namespace {

constexpr std::int64_t unknown = INT64_MIN;

// One rank: the shift between replayed and recorded time of its training thread, and its collectives.
class RankReplay {
 public:
  RankReplay(const std::vector<Interval>& waits, const std::vector<CollectivePart>& parts)
      : waits_(waits), parts_(parts), ends_(parts.size(), unknown), by_end_(parts.size()) {
    std::iota(by_end_.begin(), by_end_.end(), 0U);
    std::stable_sort(by_end_.begin(), by_end_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return parts[a].end < parts[b].end; });
  }

  // Returns when this rank arrives at the collective.
  std::int64_t arrival(std::uint32_t part) {
    const auto start = parts_[part].start;
    advance(start);
    auto progress = start;
    if (next_wait_ < waits_.size() && waits_[next_wait_].start < start) progress = waits_[next_wait_].start;
    auto replayed = progress + shift_;
    if (part > 0) {
      const auto& before = parts_[part - 1];
      if (before.end <= start + wake_up_ns && ends_[part - 1] != unknown) {
        progress = std::max(progress, std::min(before.end, start));
        replayed = std::max(replayed, ends_[part - 1]);
      }
    }
    return replayed + (start - progress);
  }

  void set_end(std::uint32_t part, std::int64_t end) { ends_[part] = end; }

  // Returns when the training thread reaches the work that it did at the recorded time `time`.
  std::int64_t at(std::int64_t time) {
    advance(time);
    return time + shift_;
  }

 private:
  void advance(std::int64_t time) {
    for (; next_wait_ < waits_.size() && waits_[next_wait_].end <= time; ++next_wait_)
      pass(waits_[next_wait_]);
  }

  void pass(Interval wait) {
    while (next_end_ < by_end_.size() && parts_[by_end_[next_end_]].end <= wait.start) ++next_end_;
    std::int64_t recorded = unknown;
    std::int64_t replayed = unknown;
    for (auto at = next_end_; at < by_end_.size(); ++at) {
      const auto part = by_end_[at];
      if (parts_[part].end > wait.end + wake_up_ns) break;
      if (ends_[part] == unknown) continue;
      recorded = std::max(recorded, parts_[part].end);
      replayed = std::max(replayed, ends_[part]);
    }
    if (recorded == unknown) return;  // No collective explains this wait, so its duration is kept.
    const auto behind = std::max<std::int64_t>(0, wait.end - recorded);
    shift_ = std::max(wait.start + shift_, replayed) + behind - wait.end;
  }

  const std::vector<Interval>& waits_;
  const std::vector<CollectivePart>& parts_;
  std::vector<std::int64_t> ends_;     // Replayed ends, by part.
  std::vector<std::uint32_t> by_end_;  // Parts ordered by recorded end.
  std::size_t next_wait_ = 0;
  std::size_t next_end_ = 0;
  std::int64_t shift_ = 0;
};

struct Member {
  std::uint32_t rank;
  std::uint32_t part;
};

// The parts of each match, match by match. `first` has the index of the first part of each match.
std::vector<Member> members_of(const CollectiveMatches& matches, std::vector<std::size_t>& first) {
  first.assign(matches.matches.size() + 1, 0);
  for (std::size_t i = 0; i < matches.matches.size(); ++i)
    first[i + 1] = first[i] + matches.matches[i].part_count;
  std::vector<Member> members(first.back());
  auto next = first;
  for (std::uint32_t rank = 0; rank < matches.parts.size(); ++rank)
    for (std::uint32_t part = 0; part < matches.parts[rank].size(); ++part)
      members[next[matches.parts[rank][part].match]++] = {rank, part};
  return members;
}

}  // namespace

// Matches are ordered by last arrival, and all collectives on which an arrival depends ended before it.
// Therefore every dependency is known when a match is processed.
std::int64_t replay_length(const RunMetrics& metrics, Network network) {
  const auto& matches = metrics.matches;
  std::vector<RankReplay> ranks;
  ranks.reserve(metrics.ranks.size());
  for (std::size_t i = 0; i < metrics.ranks.size(); ++i)
    ranks.emplace_back(metrics.ranks[i].training_waits, matches.parts[i]);
  std::vector<std::size_t> first;
  const auto members = members_of(matches, first);
  std::vector<std::int64_t> arrivals;
  for (std::size_t i = 0; i < matches.matches.size(); ++i) {
    arrivals.clear();
    for (auto at = first[i]; at < first[i + 1]; ++at)
      arrivals.push_back(ranks[members[at].rank].arrival(members[at].part));
    const auto last = *std::max_element(arrivals.begin(), arrivals.end());
    for (auto at = first[i]; at < first[i + 1]; ++at) {
      const auto& part = matches.parts[members[at].rank][members[at].part];
      const bool stays =
          part.end >= matches.matches[i].last_arrival;  // Some operations let a rank leave early.
      const auto from = stays ? last : arrivals[at - first[i]];
      const auto took = part.end - (stays ? matches.matches[i].last_arrival : part.start);
      ranks[members[at].rank].set_end(members[at].part, from + (network == Network::ideal ? 0 : took));
    }
  }
  std::int64_t end = metrics.window.time.start;
  for (std::size_t i = 0; i < ranks.size(); ++i) end = std::max(end, ranks[i].at(metrics.ranks[i].last_end));
  return end - metrics.window.time.start;
}

}  // namespace farandole

#include "farandole/analyzer/collectives.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace farandole {
namespace {

struct Arrival {
  std::uint16_t communicator = 0;
  std::uint16_t occurrence = 0;  // of this sequence number on this rank, counted from the run's end
  std::uint32_t sequence = 0;
  std::uint32_t rank_index = 0;
  const CollectiveSpan* span = nullptr;

  auto key() const { return std::tuple(communicator, sequence, occurrence); }
};

// Sequence numbers begin anew after a restart. Occurrences are counted from the end, because what a bounded
// recorder forgets is the beginning. Sorted by key, then rank.
std::vector<Arrival> arrivals_of(const RunModel& run) {
  std::vector<Arrival> arrivals;
  for (std::size_t i = 0; i < run.ranks.size(); ++i)
    for (const auto& span : run.ranks[i].collectives)
      if (span.matchable)
        arrivals.push_back(
            {span.what.communicator, 0, span.what.sequence, static_cast<std::uint32_t>(i), &span});
  std::sort(arrivals.begin(), arrivals.end(), [](const Arrival& a, const Arrival& b) {
    const std::tuple left(a.communicator, a.sequence, a.rank_index);
    const std::tuple right(b.communicator, b.sequence, b.rank_index);
    return left != right ? left < right : a.span->start > b.span->start;
  });
  bool repeated = false;
  for (std::size_t i = 1; i < arrivals.size(); ++i) {
    const auto& before = arrivals[i - 1];
    if (before.communicator != arrivals[i].communicator || before.sequence != arrivals[i].sequence ||
        before.rank_index != arrivals[i].rank_index)
      continue;
    arrivals[i].occurrence = static_cast<std::uint16_t>(before.occurrence + 1);
    repeated = true;
  }
  if (repeated)
    std::stable_sort(arrivals.begin(), arrivals.end(),
                     [](const Arrival& a, const Arrival& b) { return a.key() < b.key(); });
  return arrivals;
}

std::string without_underscores(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (c != '_') result += c;
  return result;
}

std::uint64_t bytes_of(const std::string& operation, std::span<const Arrival> group) {
  const bool gathers = without_underscores(operation) == "allgather";
  std::uint64_t bytes = 0;
  for (const auto& arrival : group)
    bytes = gathers ? bytes + arrival.span->what.bytes : std::max(bytes, arrival.span->what.bytes);
  return bytes;
}

void add_match(const RunModel& run, std::span<const Arrival> group, CollectiveMatches& result) {
  CollectiveMatch match;
  match.first_part = result.parts.size();
  match.part_count = static_cast<std::uint32_t>(group.size());
  match.name = group.front().span->name;
  match.operation = group.front().span->operation;
  match.bytes = bytes_of(run.names[match.operation], group);
  match.first_arrival = match.last_arrival = group.front().span->start;
  for (const auto& arrival : group) {
    match.first_arrival = std::min(match.first_arrival, arrival.span->start);
    match.last_arrival = std::max(match.last_arrival, arrival.span->start);
    result.parts.push_back({arrival.rank_index, arrival.span->start, arrival.span->end});
  }
  result.matches.push_back(match);
}

double us(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}

struct Samples {
  std::vector<double> bytes, duration_us, transfer_us;
  double wait_us = 0;
  std::size_t ranks = 0;
};

CollectiveRow row_of(const std::string& name, const std::string& operation, const Samples& samples) {
  CollectiveRow row{name,
                    operation,
                    samples.bytes.size(),
                    quantile(samples.bytes, 0.5),
                    quantile(samples.duration_us, 0.5),
                    0,
                    quantile(samples.transfer_us, 0.5),
                    {},
                    {},
                    0};
  row.wait_us = samples.wait_us / static_cast<double>(samples.duration_us.size());
  row.total_s = std::accumulate(samples.duration_us.begin(), samples.duration_us.end(), 0.0) * 1e-6;
  if (row.bytes <= 0) {
    row.algbw_gbps = row.busbw_gbps = Figure::because("it carries no bytes");
    return row;
  }
  row.algbw_gbps =
      Figure::ratio(row.bytes * 1e-3, row.transfer_us, "its transfer is shorter than the clocks resolve");
  row.busbw_gbps = row.algbw_gbps;
  if (row.busbw_gbps.value) *row.busbw_gbps.value *= bus_factor(operation, samples.ranks);
  return row;
}

}  // namespace

CollectiveMatches match_collectives(const RunModel& run, Interval window) {
  const auto arrivals = arrivals_of(run);
  CollectiveMatches result;
  const auto inside = [&](std::int64_t time) { return time >= window.start && time <= window.end; };
  for (const auto& rank : run.ranks)
    for (const auto& span : rank.collectives)
      if (!span.matchable && inside(span.start)) ++result.unmatched;
  std::map<std::uint16_t, std::set<std::uint32_t>> members;
  for (const auto& arrival : arrivals) members[arrival.communicator].insert(arrival.rank_index);
  for (std::size_t begin = 0, end = 0; begin < arrivals.size(); begin = end) {
    std::int64_t last = arrivals[begin].span->start;
    for (end = begin; end < arrivals.size() && arrivals[end].key() == arrivals[begin].key(); ++end)
      last = std::max(last, arrivals[end].span->start);
    if (!inside(last)) continue;
    if (end - begin == members[arrivals[begin].communicator].size())
      add_match(run, std::span<const Arrival>(arrivals).subspan(begin, end - begin), result);
    else
      result.unmatched += end - begin;
  }
  std::sort(
      result.matches.begin(), result.matches.end(),
      [](const CollectiveMatch& a, const CollectiveMatch& b) { return a.last_arrival < b.last_arrival; });
  return result;
}

std::vector<CollectiveRow> collective_table(const RunModel& run, const CollectiveMatches& matches) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, Samples> groups;
  for (const auto& match : matches.matches) {
    auto& samples = groups[{match.name, match.operation}];
    samples.bytes.push_back(static_cast<double>(match.bytes));
    samples.ranks = std::max<std::size_t>(samples.ranks, match.part_count);
    for (const auto& part : matches.parts_of(match)) {
      const auto wait = wait_of(match, part);
      samples.duration_us.push_back(us(part.end - part.start));
      samples.wait_us += us(wait.end - wait.start);
      samples.transfer_us.push_back(us(part.end - wait.end));
    }
  }
  std::vector<CollectiveRow> rows;
  for (const auto& [key, samples] : groups)
    rows.push_back(row_of(run.names[key.first], run.names[key.second], samples));
  std::sort(rows.begin(), rows.end(), [](const CollectiveRow& a, const CollectiveRow& b) {
    return std::tuple(-a.total_s, a.name, a.operation) < std::tuple(-b.total_s, b.name, b.operation);
  });
  return rows;
}

double bus_factor(std::string_view operation, std::size_t ranks) {
  const auto name = without_underscores(operation);
  const double p = static_cast<double>(ranks);
  if (name == "allreduce") return 2 * (p - 1) / p;
  if (name == "allgather" || name == "reducescatter" || name == "alltoall") return (p - 1) / p;
  return 1;
}

}  // namespace farandole

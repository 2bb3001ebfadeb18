#include "farandole/analyzer/metrics/collectives.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "farandole/analyzer/metrics/mpi_calls.h"
#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {
namespace {

constexpr std::uint32_t no_match = UINT32_MAX;
// Stands for the communicators of the program's own MPI calls. No recorder uses so high a number.
constexpr std::uint16_t mpi_calls_on_all_ranks = UINT16_MAX;
constexpr const char* arrive_together = "the ranks arrive at the same time, as far as their clocks can tell";
constexpr const char* ranks_unknown = "the trace does not record how many ranks take part";

struct Key {
  std::uint16_t communicator = 0;
  std::uint16_t occurrence = 0;  // Counts this sequence number on this rank, from the end of the run.
  std::uint32_t sequence = 0;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  std::size_t operator()(const Key& key) const {
    const auto all =
        std::uint64_t{key.communicator} << 48 | std::uint64_t{key.occurrence} << 32 | key.sequence;
    return all * 0x9E3779B97F4A7C15U;
  }
};

// The state of a collective while the ranks are added.
struct Group {
  CollectiveMatch match;
  std::uint64_t bytes_sum = 0;
  std::int64_t first_end = INT64_MAX;
  bool same_name = true;
  std::uint16_t communicator = 0;
  std::uint32_t stated_ranks = 0;  // 0: the trace does not record it.
};

// Whether the ranks record their own contributions to an all-gather. Farandole records those of all ranks.
bool records_parts(const RunModel& run, std::uint32_t operation) {
  return run.source != TraceSource::farandole && plain_operation(run.names[operation]) == "allgather";
}

// Builds groups rank by rank.
class Matcher {
 public:
  Matcher(const RunModel& run, Interval window, bool of_mpi)
      : run_(run),
        window_(window),
        of_mpi_(of_mpi),
        clock_error_(static_cast<std::int64_t>(1e6 * clock_error_ms(run))) {}

  CollectiveMatches run() {
    for (std::uint32_t i = 0; i < run_.ranks.size(); ++i) add_rank(i);
    finish();
    return std::move(result_);
  }

 private:
  bool inside(std::int64_t time) const { return time >= window_.start && time <= window_.end; }

  // Sequence numbers begin again after a restart. Occurrences are counted from the end, because a full
  // recorder loses the beginning.
  void add_rank(std::uint32_t rank_index) {
    auto& parts = result_.parts.emplace_back();
    if (!run_.ranks[rank_index].clock_residual_us) return;
    ++matched_;
    const auto spans = run_.ranks[rank_index].collectives();
    parts.reserve(spans.size());
    std::unordered_map<Key, std::uint16_t, KeyHash> seen;
    std::map<std::uint16_t, bool> communicators;
    std::uint32_t mpi_calls = 0;  // counted from the run's end, too
    for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
      if (is_mpi_collective(*span)) {
        const Key key{mpi_calls_on_all_ranks, 0, mpi_calls++};
        communicators[key.communicator] = true;
        parts.push_back({span->start, span->end, add_part(key, *span, rank_index)});
        continue;
      }
      if (!span->matchable) {
        if (inside(span->start) && !is_mpi_call(run_.names[span->name])) ++result_.unmatched;
        continue;
      }
      Key key{span->what.communicator, 0, span->what.sequence};
      key.occurrence = seen[key]++;
      communicators[key.communicator] = true;
      parts.push_back({span->start, span->end, add_part(key, *span, rank_index)});
    }
    for (const auto& [communicator, there] : communicators) ++members_[communicator];
    std::reverse(parts.begin(), parts.end());
  }

  bool is_mpi_collective(const CollectiveSpan& span) const {
    return of_mpi_ && !span.matchable && span.ranks == run_.world_size() &&
           !mpi_collective_of(run_.names[span.name]).empty();
  }

  std::uint32_t add_part(const Key& key, const CollectiveSpan& span, std::uint32_t rank_index) {
    const auto [found, is_new] = index_.try_emplace(key, static_cast<std::uint32_t>(groups_.size()));
    if (is_new) {
      auto& group = groups_.emplace_back();
      group.communicator = key.communicator;
      group.match.name = span.name;
      group.match.operation = span.operation;
      group.match.first_arrival = INT64_MAX;
      group.match.last_arrival = INT64_MIN;
    }
    auto& group = groups_[found->second];
    auto& match = group.match;
    ++match.part_count;
    group.same_name &= match.name == span.name;
    group.first_end = std::min(group.first_end, span.end);
    group.stated_ranks = std::max(group.stated_ranks, span.ranks);
    match.arrivals_known &= span.arrival_known;
    match.bytes = std::max(match.bytes, span.what.bytes);
    group.bytes_sum += span.what.bytes;
    match.first_arrival = std::min(match.first_arrival, span.start);
    if (span.start > match.last_arrival) {
      match.last_arrival = span.start;
      match.last_rank = rank_index;
    }
    return found->second;
  }

  void finish() {
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < groups_.size(); ++i) {
      auto& group = groups_[i];
      if (!inside(group.match.last_arrival)) continue;
      if (group.match.part_count != members_[group.communicator] || is_mispaired(group)) {
        result_.unmatched += group.match.part_count;
        continue;
      }
      group.match.ranks = ranks_of(group);
      if (records_parts(run_, group.match.operation)) group.match.bytes = gathered_bytes(group);
      order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::tuple(groups_[a].match.last_arrival, a) < std::tuple(groups_[b].match.last_arrival, b);
    });
    std::vector<std::uint32_t> place(groups_.size(), no_match);
    for (const auto i : order) {
      place[i] = static_cast<std::uint32_t>(result_.matches.size());
      result_.matches.push_back(groups_[i].match);
    }
    for (auto& parts : result_.parts) {
      for (auto& part : parts) part.match = place[part.match];
      std::erase_if(parts, [](const CollectivePart& part) { return part.match == no_match; });
      parts.shrink_to_fit();
    }
  }

  // Returns whether the calls of a group are not one collective: a rank that ended earlier than the others
  // has fewer calls, and counting from the end then pairs different calls.
  bool is_mispaired(const Group& group) const {
    if (group.communicator != mpi_calls_on_all_ranks) return false;
    return !group.same_name || (synchronizes(run_.names[group.match.name]) &&
                                group.first_end + clock_error_ < group.match.last_arrival);
  }

  // If ranks are missing, the number is known only for communicators with all other ranks, or if
  // the trace records it.
  std::uint32_t ranks_of(const Group& group) const {
    const auto parts = group.match.part_count;
    if (group.stated_ranks > 0) return std::max(group.stated_ranks, parts);
    const auto world = static_cast<std::uint32_t>(run_.world_size());
    const bool of_world = run_.source == TraceSource::farandole ? group.communicator == 0 : parts == matched_;
    if (of_world) return std::max(world, parts);
    return matched_ == world ? parts : 0;
  }

  // Missing ranks contribute as much as the others.
  static std::uint64_t gathered_bytes(const Group& group) {
    const auto& match = group.match;
    return group.bytes_sum * std::max(match.ranks, match.part_count) / match.part_count;
  }

  const RunModel& run_;
  const Interval window_;
  const bool of_mpi_;
  const std::int64_t clock_error_;
  std::vector<Group> groups_;
  std::unordered_map<Key, std::uint32_t, KeyHash> index_;
  std::map<std::uint16_t, std::uint32_t> members_;  // Number of ranks by communicator.
  std::uint32_t matched_ = 0;                       // Ranks whose clocks are known.
  CollectiveMatches result_;
};

double us(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}

struct Samples {
  Distribution bytes, duration_us, transfer_us;
  bool bytes_known = true;
  double wait_us = 0;
  double waits = 0;       // Number of parts of which the wait is known.
  std::size_t ranks = 0;  // 0: unknown.
  std::size_t parts = 0;  // Ranks in the trace.
  // Of a rank, whose collectives may be those of one of several communicators.
  struct Arrivals {
    double late_us = 0;  // After the first rank's, over all.
    double last = 0;     // How often the rank is the last.
    double count = 0;
    double mean_us() const { return late_us / count; }
  };
  std::map<std::uint32_t, Arrivals> arrivals;  // By index into RunModel::ranks.
};

void add_latest_rank(const RunModel& run, const Samples& samples, CollectiveRow& row) {
  row.late_us = row.last_share = samples.parts < 2 ? row.wait_us : Figure::because(arrive_together);
  if (samples.parts < 2 || samples.arrivals.empty()) return;
  const auto latest =
      std::max_element(samples.arrivals.begin(), samples.arrivals.end(),
                       [](const auto& a, const auto& b) { return a.second.mean_us() < b.second.mean_us(); });
  const auto& [rank, arrivals] = *latest;
  if (arrivals.mean_us() <= 1e3 * clock_error_ms(run) || arrivals.late_us <= 0) return;
  row.last_rank = run.ranks[rank].rank;
  row.late_us = Figure::known(arrivals.mean_us());
  row.last_share = Figure::known(arrivals.last / arrivals.count);
  row.last_count = static_cast<std::uint64_t>(arrivals.count);
}

CollectiveRow row_of(const std::string& name, const std::string& operation, const Samples& samples) {
  CollectiveRow row;
  row.name = name;
  row.operation = operation;
  row.count = samples.bytes.count();
  row.bytes =
      samples.bytes_known ? Figure::known(samples.bytes.quantile(0.5)) : Figure::because(ranks_unknown);
  row.median_us = samples.duration_us.quantile(0.5);
  row.wait_us = samples.parts < 2 && samples.ranks != 1
                    ? Figure::because(one_rank_of_several)
                    : Figure::ratio(samples.wait_us, samples.waits, "the trace has no arrivals");
  row.transfer_us = samples.transfer_us.quantile(0.5);
  row.transfer_p10_us = samples.transfer_us.quantile(0.1);
  row.transfer_p90_us = samples.transfer_us.quantile(0.9);
  row.total_s = samples.duration_us.sum() * 1e-6;
  if (!row.bytes.value || *row.bytes.value <= 0) {
    row.algbw_gbps = row.busbw_gbps = row.bytes.value ? Figure::because("it transfers no bytes") : row.bytes;
    return row;
  }
  row.algbw_gbps =
      Figure::ratio(*row.bytes.value * 1e-3, row.transfer_us, "its transfer is shorter than the clock error");
  row.busbw_gbps = row.algbw_gbps;
  const bool by_ranks = bus_factor(operation, 2) != bus_factor(operation, 4);
  if (row.busbw_gbps.value && by_ranks && samples.ranks < 2)
    row.busbw_gbps = Figure::because(samples.ranks == 1 ? "a single rank transfers nothing" : ranks_unknown);
  if (row.busbw_gbps.value) *row.busbw_gbps.value *= bus_factor(operation, samples.ranks);
  return row;
}

// Returns the best bus bandwidth that a tenth of the parts of some row reached; 0 if none is known.
double proven_gbps(const CollectiveRow& row, const Samples& samples) {
  if (!row.busbw_gbps.value || samples.transfer_us.count() < 10 || row.transfer_p10_us <= 0) return 0;
  return *row.busbw_gbps.value * row.transfer_us / row.transfer_p10_us;
}

}  // namespace

double clock_error_ms(const RunModel& run) {
  double largest = 0, second = 0;
  for (const auto& rank : run.ranks) {
    const double residual = rank.clock_residual_us.value_or(0);
    second = std::max(second, std::min(largest, residual));
    largest = std::max(largest, residual);
  }
  return 1e-3 * (largest + second);
}

CollectiveMatches match_collectives(const RunModel& run, Interval window, bool of_mpi) {
  return Matcher(run, window, of_mpi).run();
}

std::vector<CollectiveRow> collective_table(const RunModel& run, const CollectiveMatches& matches) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, Samples> groups;
  std::vector<Samples*> samples_of;
  for (const auto& match : matches.matches) {
    auto& samples = groups[{match.name, match.operation}];
    samples.bytes.add(static_cast<double>(match.bytes));
    samples.bytes_known &= match.ranks > 0 || !records_parts(run, match.operation);
    samples.ranks = std::max<std::size_t>(samples.ranks, match.ranks);
    samples.parts = std::max<std::size_t>(samples.parts, match.part_count);
    samples_of.push_back(&samples);
  }
  for (std::uint32_t rank = 0; rank < matches.parts.size(); ++rank)
    for (const auto& part : matches.parts[rank]) {
      const auto& match = matches.matches[part.match];
      const auto wait = wait_of(match, part);
      auto& samples = *samples_of[part.match];
      if (match.arrivals_known) {
        auto& arrivals = samples.arrivals[rank];
        arrivals.late_us += us(part.start - match.first_arrival);
        arrivals.last += match.last_rank == rank && match.last_arrival > match.first_arrival ? 1 : 0;
        ++arrivals.count;
        samples.wait_us += us(wait.end - wait.start);
        ++samples.waits;
      }
      samples.duration_us.add(us(part.end - part.start));
      samples.transfer_us.add(us(part.end - wait.end));
    }
  std::vector<CollectiveRow> rows;
  double proven = 0;
  for (const auto& [key, samples] : groups) {
    const auto& name = run.names[key.first];
    const auto of_mpi = mpi_collective_of(name);
    rows.push_back(row_of(name, of_mpi.empty() ? run.names[key.second] : std::string(of_mpi), samples));
    add_latest_rank(run, samples, rows.back());
    proven = std::max(proven, proven_gbps(rows.back(), samples));
  }
  for (auto& row : rows)
    row.of_proven = row.busbw_gbps.value
                        ? Figure::ratio(*row.busbw_gbps.value, proven,
                                        "there are too few collectives to measure a bandwidth")
                        : row.busbw_gbps;
  std::sort(rows.begin(), rows.end(), [](const CollectiveRow& a, const CollectiveRow& b) {
    return std::tuple(-a.total_s, a.name, a.operation) < std::tuple(-b.total_s, b.name, b.operation);
  });
  return rows;
}

std::string plain_operation(std::string_view operation) {
  std::string letters;
  for (const char c : operation)
    if (c != '_') letters += c;
  for (const std::string_view plain : {"allreduce", "allgather", "reducescatter", "alltoall"})
    if (letters.starts_with(plain)) return std::string(plain);
  return letters;
}

double bus_factor(std::string_view operation, std::size_t ranks) {
  const auto name = plain_operation(operation);
  const double p = static_cast<double>(ranks);
  if (name == "allreduce") return 2 * (p - 1) / p;
  if (name == "allgather" || name == "reducescatter" || name == "alltoall") return (p - 1) / p;
  return 1;
}

}  // namespace farandole

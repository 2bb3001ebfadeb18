#include "farandole/timeline/merge/trace_merge.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/timeline/chrome_trace/trace_writer.h"
#include "farandole/timeline/event.h"

namespace farandole {
namespace {

class CollectiveLinks {
 public:
  explicit CollectiveLinks(std::size_t most) : most_(most) {}

  void add(const Collective& what, TraceWriter::Place place, std::int64_t start_ns);
  // Writes flows for each collective that several ranks recorded: from the first rank to arrive to each other
  // rank. Each rank counts once. Returns the number of flows.
  std::uint64_t write(TraceWriter& trace);
  std::uint64_t stride() const { return stride_; }

 private:
  struct Entry {
    std::uint64_t key;  // communicator and sequence
    std::int64_t start_ns;
    std::int32_t rank;
    std::int32_t thread;
  };

  std::size_t most_;
  std::uint64_t stride_ = 1;
  std::vector<Entry> entries_;
};

void CollectiveLinks::add(const Collective& what, TraceWriter::Place place, std::int64_t start_ns) {
  if (what.sequence % stride_ != 0) return;
  if (entries_.size() >= most_ && stride_ < (std::uint64_t{1} << 32)) {
    // Selects by sequence number, so that all ranks' entries of a collective are either kept or removed.
    stride_ *= 2;
    std::erase_if(entries_, [this](const Entry& entry) { return entry.key % stride_ != 0; });
    return add(what, place, start_ns);
  }
  if (entries_.size() >= most_) return;
  entries_.push_back(
      {std::uint64_t{what.communicator} << 32 | what.sequence, start_ns, place.rank, place.thread});
}

std::uint64_t CollectiveLinks::write(TraceWriter& trace) {
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.key, a.rank, a.start_ns) < std::tie(b.key, b.rank, b.start_ns);
  });
  const auto same = [](const Entry& a, const Entry& b) { return a.key == b.key && a.rank == b.rank; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
  std::uint64_t flows = 0;
  for (auto group = entries_.begin(); group != entries_.end();) {
    const auto end =
        std::find_if(group, entries_.end(), [&](const Entry& entry) { return entry.key != group->key; });
    const auto first =
        std::min_element(group, end, [](const Entry& a, const Entry& b) { return a.start_ns < b.start_ns; });
    for (auto entry = group; entry != end; ++entry)
      if (entry != first)
        trace.flow(++flows, {first->rank, first->thread}, first->start_ns, {entry->rank, entry->thread},
                   entry->start_ns);
    group = end;
  }
  return flows;
}

// A slot's position among the threads of the trace. The training thread comes first, then the others
// by their first event.
std::vector<int> thread_order(const RankInfo& info) {
  std::vector<int> place(info.threads.size());
  std::iota(place.begin(), place.end(), 0);
  const auto training = std::find_if(info.threads.begin(), info.threads.end(),
                                     [](const RecorderThread& thread) { return thread.name == "training"; });
  if (training != info.threads.end())
    std::swap(place[0], place[static_cast<std::size_t>(training - info.threads.begin())]);
  return place;
}

std::uint64_t overwritten_of(const RankInfo& info) {
  return std::accumulate(
      info.threads.begin(), info.threads.end(), std::uint64_t{0},
      [](std::uint64_t sum, const RecorderThread& thread) { return sum + thread.overwritten; });
}

// A text for people about missing events; "" if none is missing.
std::string what_is_missing(const RankInfo& info) {
  std::string text;
  const auto add = [&](std::uint64_t count, std::string_view what) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(overwritten_of(info), "oldest events overwritten");
  add(info.dropped, "events dropped");
  add(info.damaged, "damaged events left out");
  return text;
}

class RankMerger {
 public:
  RankMerger(RankTimeline& rank, std::int64_t origin_ns, TraceWriter& trace, CollectiveLinks& links)
      : rank_(rank),
        info_(rank.records->info()),
        origin_ns_(origin_ns),
        trace_(trace),
        links_(links),
        places_(thread_order(info_)) {}

  void run() {
    describe();
    for (std::span<const Record> block = rank_.records->next(); !block.empty(); block = rank_.records->next())
      for (const Record& record : block) write(record);
  }
  std::uint64_t clipped() const { return clipped_; }

 private:
  void describe() {
    trace_.process(info_.rank, info_.host);
    if (const std::string label = what_is_missing(info_); !label.empty())
      trace_.process_label(info_.rank, label);
    for (std::size_t slot = 0; slot < info_.threads.size(); ++slot) {
      const std::string& name = info_.threads[slot].name;
      const int place = places_[slot];
      if (!name.empty() || info_.threads[slot].recorded > 0)
        trace_.thread({info_.rank, place}, !name.empty() ? name
                                           : place == 0  ? "main"
                                                         : fmt::format("thread {}", place));
    }
  }

  std::int64_t to_trace(std::int64_t local_ns) const {
    return rank_.clock.to_reference(local_ns) - origin_ns_;
  }

  // The span on the trace's clock. It is shortened if it would end after the span in which it started.
  TraceWriter::Interval nested(const Record& record) {
    if (std::exchange(track_, record.track) != record.track) open_ends_.clear();
    TraceWriter::Interval when{to_trace(record.start_ns), to_trace(std::max(record.start_ns, record.end_ns))};
    while (!open_ends_.empty() && open_ends_.back() <= when.start_ns) open_ends_.pop_back();
    if (!open_ends_.empty() && when.end_ns > open_ends_.back()) {
      when.end_ns = open_ends_.back();
      ++clipped_;
    }
    open_ends_.push_back(when.end_ns);
    return when;
  }

  void write(const Record& record) {
    const TraceWriter::Place place{info_.rank, places_.at(record.track)};
    const std::string& name = info_.names.at(record.name);
    switch (record.kind) {
      case RecordKind::none:
        break;
      case RecordKind::span:
        return trace_.span(place, nested(record),
                           {record.category, name, record.step, record.launched_in(), record.mpi_call(),
                            record.queued_ns()});
      case RecordKind::collective: {
        const Collective what = record.collective();
        const TraceWriter::Interval when = nested(record);
        links_.add(what, place, when.start_ns);
        return trace_.collective(place, name, info_.names.at(record.operation), what, record.step, when);
      }
      case RecordKind::instant:
        return trace_.instant(place, name, to_trace(record.start_ns), record.bytes());
      case RecordKind::counter:
        return trace_.counter(info_.rank, name, to_trace(record.start_ns), record.value());
    }
  }

  RankTimeline& rank_;
  const RankInfo& info_;
  const std::int64_t origin_ns_;
  TraceWriter& trace_;
  CollectiveLinks& links_;
  const std::vector<int> places_;
  int track_ = -1;
  std::vector<std::int64_t> open_ends_;
  std::uint64_t clipped_ = 0;
};

// Ranks that share a clock share its samples, because only one of them measures the clock while the job runs.
// The clock's number distinguishes hosts with the same name, and the name distinguishes hosts whose numbers
// are equal by chance.
using ClockKey = std::tuple<std::string, std::uint32_t, int>;
ClockKey clock_of(const RankInfo& info) {
  return {info.host, info.clock, info.clock != 0 ? -1 : info.rank};
}

class SharedClocks {
 public:
  explicit SharedClocks(std::span<const RankInfo* const> ranks) {
    std::map<ClockKey, std::vector<RoundTrip>> round_trips;
    for (const RankInfo* info : ranks) {
      auto& own = round_trips[clock_of(*info)];
      own.insert(own.end(), info->clock_samples.begin(), info->clock_samples.end());
      if (info->rank == 0) models_.emplace(clock_of(*info), ClockModel());  // the reference
    }
    for (const auto& [clock, trips] : round_trips)
      if (!trips.empty() && !models_.contains(clock)) models_.emplace(clock, ClockModel::fit(trips));
    // Without rank 0 and without a measurement, the lowest rank has the reference.
    const auto lowest = std::min_element(ranks.begin(), ranks.end(),
                                         [](const auto* a, const auto* b) { return a->rank < b->rank; });
    if (models_.empty() && lowest != ranks.end()) models_.emplace(clock_of(**lowest), ClockModel());
  }

  // std::nullopt if nothing is known about the rank's clock.
  std::optional<ClockModel> model_of(const RankInfo& info) const {
    const auto found = models_.find(clock_of(info));
    return found != models_.end() ? std::optional(found->second.until(info.last_ns)) : std::nullopt;
  }

 private:
  std::map<ClockKey, ClockModel> models_;
};

void sort_by_rank(std::vector<RankTimeline>& ranks) {
  if (ranks.empty())
    throw UserError("there is no rank's timeline to merge; give the recorder's files of a run");
  const auto rank_of = [](const RankTimeline& timeline) { return timeline.records->info().rank; };
  std::sort(ranks.begin(), ranks.end(),
            [&](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
  for (std::size_t i = 1; i < ranks.size(); ++i)
    if (rank_of(ranks[i]) == rank_of(ranks[i - 1]))
      throw UserError(
          fmt::format("two timelines belong to rank {}; merge only the files of one run", rank_of(ranks[i])));
}

}  // namespace

std::uint64_t refine_clocks_of(std::vector<RankTimeline>& ranks) {
  std::vector<RankClock> clocks;
  std::map<ClockKey, int> numbers;
  for (const RankTimeline& rank : ranks) {
    const auto& info = rank.records->info();
    const int number = numbers.emplace(clock_of(info), static_cast<int>(numbers.size())).first->second;
    clocks.push_back({rank.clock, rank.clock_known, info.meetings, number});
  }
  const std::uint64_t broken = refine_clocks(clocks);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].clock = clocks[i].model;
    ranks[i].clock_known = clocks[i].known;
  }
  return broken;
}

std::int64_t earliest_of(const std::vector<RankTimeline>& ranks) {
  std::int64_t earliest = INT64_MAX;
  for (const RankTimeline& rank : ranks)
    if (const std::int64_t first = rank.records->info().first_ns; first != INT64_MAX)
      earliest = std::min(earliest, rank.clock.to_reference(first));
  return earliest == INT64_MAX ? 0 : earliest;
}

std::vector<RankTimeline> with_clocks(std::vector<std::unique_ptr<RecordSource>> sources,
                                      std::span<const RankInfo> others) {
  std::vector<const RankInfo*> infos;
  for (const auto& source : sources) infos.push_back(&source->info());
  for (const RankInfo& info : others) infos.push_back(&info);
  const SharedClocks clocks(infos);
  // The date at which rank 0's clock shows 0, from a rank whose clock relative to rank 0's is known.
  std::optional<std::int64_t> date_of_zero;
  for (const RankInfo* info : infos)
    if (const auto clock = clocks.model_of(*info); clock && (!date_of_zero || info->rank == 0))
      date_of_zero = info->start_realtime_ns - clock->to_reference(info->start_monotonic_ns);
  std::vector<RankTimeline> ranks;
  for (auto& source : sources) {
    const auto clock = clocks.model_of(source->info());
    ranks.push_back({std::move(source), clock.value_or(ClockModel()), clock.has_value()});
  }
  // Ranks of one clock have one date, which may be set while they start.
  std::map<ClockKey, std::int64_t> zeros;
  for (RankTimeline& rank : ranks) {
    if (rank.clock_known) continue;
    const RankInfo& info = rank.records->info();
    const std::int64_t date_of_own_zero =
        zeros.emplace(clock_of(info), info.start_realtime_ns - info.start_monotonic_ns).first->second;
    if (!date_of_zero) date_of_zero = date_of_own_zero;
    const auto shift = static_cast<double>(date_of_own_zero - *date_of_zero);
    rank.clock = ClockModel().shifted(0, shift, 0, shift, 0);
  }
  return ranks;
}

MergeResult merge_timelines(std::vector<RankTimeline> ranks, const std::filesystem::path& output,
                            const MergeOptions& options) {
  sort_by_rank(ranks);
  MergeResult result;
  result.left_early = refine_clocks_of(ranks);
  int world_size = ranks.back().records->info().rank + 1;
  for (const RankTimeline& rank : ranks) world_size = std::max(world_size, rank.records->info().world_size);
  std::vector<std::int64_t> residuals(static_cast<std::size_t>(world_size), -1);
  for (const RankTimeline& rank : ranks)
    if (rank.clock_known)
      residuals[static_cast<std::size_t>(rank.records->info().rank)] = rank.clock.residual_ns();

  TraceWriter trace(output, {world_size, residuals}, options.threads);
  CollectiveLinks links(options.most_linked);
  const std::int64_t origin_ns = earliest_of(ranks);
  for (RankTimeline& rank : ranks) {
    RankMerger merger(rank, origin_ns, trace, links);
    merger.run();
    const RankInfo& info = rank.records->info();
    result.clipped += merger.clipped();
    result.overwritten += overwritten_of(info);
    result.dropped += info.dropped;
    result.damaged += info.damaged;
    rank.records.reset();
  }
  result.flows = links.write(trace);
  result.link_stride = links.stride();
  trace.finish();
  result.events = trace.events();
  return result;
}

}  // namespace farandole

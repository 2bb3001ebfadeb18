#include <algorithm>
#include <fmt/format.h>
#include <set>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/model/trace_collector.h"
#include "farandole/base/error.h"
#include "farandole/base/text/phrases.h"
#include "farandole/timeline/merge/run_recorders.h"

namespace farandole {
namespace {

// The records of one rank as events of a process. The collector belongs to this rank.
class RankRecords {
 public:
  RankRecords(RankTimeline& rank, std::int64_t origin_ns, TraceCollector& collector)
      : rank_(rank), info_(rank.records->info()), origin_ns_(origin_ns), collector_(collector) {}

  void read() {
    collector_.process({info_.rank, "", info_.rank, info_.host});
    for (std::size_t slot = 0; slot < info_.threads.size(); ++slot)
      collector_.thread({info_.rank, static_cast<std::int64_t>(slot), info_.threads[slot].name});
    for (auto block = rank_.records->next(); !block.empty(); block = rank_.records->next())
      for (const Record& record : block) take(record);
  }
  std::uint64_t events() const { return events_; }

 private:
  void take(const Record& record) {
    ++events_;
    if (record.kind == RecordKind::instant)
      collector_.instant(
          {info_.rank, info_.names.at(record.name), rank_.clock.to_reference(record.start_ns) - origin_ns_});
    if (record.kind == RecordKind::counter)
      collector_.counter({info_.rank, info_.names.at(record.name),
                          rank_.clock.to_reference(record.start_ns) - origin_ns_, record.value()});
    if (record.kind != RecordKind::span && record.kind != RecordKind::collective) return;
    TraceSpan span;
    span.pid = info_.rank;
    span.tid = record.track;
    span.category = record.category;
    span.category_text = name_of(record.category);
    span.name = info_.names.at(record.name);
    span.start_ns = rank_.clock.to_reference(record.start_ns) - origin_ns_;
    span.duration_ns =
        std::max<std::int64_t>(0, rank_.clock.to_reference(record.end_ns) - origin_ns_ - span.start_ns);
    if (record.step >= 0) span.step = record.step;
    span.phase = record.launched_in();
    span.queued_ns = record.queued_ns();
    if (record.kind == RecordKind::collective) {
      span.operation = info_.names.at(record.operation);
      span.collective = record.collective();
    }
    const MpiCall call = record.mpi_call();
    span.bytes = call.bytes.value_or(0);
    span.message.ranks = call.ranks;
    collector_.span(span);
  }

  RankTimeline& rank_;
  const RankInfo& info_;
  const std::int64_t origin_ns_;
  TraceCollector& collector_;
  std::uint64_t events_ = 0;
};

void name_problems(const RunRecorders& recorders, RunModel& run) {
  if (!recorders.earlier.empty()) run.warnings.push_back(recorders.earlier);
  if (!recorders.missing.empty()) run.warnings.push_back(recorders.missing);
  std::uint64_t overwritten = 0;
  for (const auto& file : recorders.files) {
    run.warnings.insert(run.warnings.end(), file.problems.begin(), file.problems.end());
    overwritten += file.overwritten;
  }
  if (overwritten > 0)
    run.warnings.push_back(fmt::format(
        "{} of the oldest events are overwritten (--recorder-mb or RecordingOptions::recorder_bytes limits the file size)",
        overwritten));
}

}  // namespace

void warn_of_ranks(const std::filesystem::path& path, RunModel& run) {
  const auto signs = read_signs(path);
  if (signs.empty()) return;
  constexpr double late_s = 10;
  const auto lowest = std::min_element(signs.begin(), signs.end(),
                                       [](const auto& a, const auto& b) { return a.rank < b.rank; });
  std::set<std::pair<std::string, std::uint32_t>> measured{{lowest->host, lowest->clock}};
  std::int64_t first_ns = INT64_MAX;
  for (const auto& sign : signs) {
    first_ns = std::min(first_ns, sign.start.realtime_ns);
    if (sign.clock_measured) measured.emplace(sign.host, sign.clock);
  }
  std::vector<int> open, late, guessed;
  double latest_s = 0;
  for (const auto& sign : signs) {
    if (!sign.closed) open.push_back(sign.rank);
    if (!measured.contains({sign.host, sign.clock})) guessed.push_back(sign.rank);
    const auto after_s = static_cast<double>(sign.start.realtime_ns - first_ns) * 1e-9;
    if (after_s < late_s) continue;
    late.push_back(sign.rank);
    latest_s = std::max(latest_s, after_s);
  }
  const auto warn = [&](const std::vector<int>& ranks, const std::string& what) {
    if (!ranks.empty()) run.warnings.push_back(fmt::format("{} {}", describe_ranks(ranks), what));
  };
  warn(open,
       fmt::format("(of {}) did not close the recorder: killed, or still running", lowest->start.world_size));
  warn(late, fmt::format("began to record up to {:.0f} s after the first rank", latest_s));
  std::optional<double> error_us = 0.0;
  for (const auto& rank : run.ranks)
    if (std::find(guessed.begin(), guessed.end(), rank.rank) != guessed.end())
      error_us = error_us && rank.clock_residual_us
                     ? std::optional(std::max(*error_us, *rank.clock_residual_us))
                     : std::nullopt;
  warn(guessed,
       "recorded on hosts whose clocks were not measured; " +
           (error_us ? fmt::format("their dates and collectives align them to {:.3g} ms", *error_us * 1e-3)
                     : "their dates align them, to an unknown error"));
}

RunModel read_recorders(const std::filesystem::path& path) {
  RunMergeOptions options;
  options.merge_limit = 0;
  auto recorders = open_run(recorder_files(path), options);
  RunModel run;
  name_problems(recorders, run);
  refine_clocks_of(recorders.ranks);
  const auto origin = earliest_of(recorders.ranks);
  TraceCollector collector;
  std::set<int> seen;
  int world_size = 1;
  for (auto& rank : recorders.ranks) {
    const auto& info = rank.records->info();
    world_size = std::max(world_size, info.world_size);
    if (!seen.insert(info.rank).second) {
      run.warnings.push_back(
          fmt::format("two recorders belong to rank {}; the second is left out", info.rank));
      continue;
    }
    RankRecords records(rank, origin, collector);
    records.read();
    run.events += records.events();
    auto& process = collector.processes().at(info.rank);
    if (process.has_spans()) {
      run.ranks.push_back(rank_model_of(info.rank, process));
      run.ranks.back().clock_residual_us =
          rank.clock_known ? std::optional(static_cast<double>(rank.clock.residual_ns()) * 1e-3)
                           : std::nullopt;
    }
    rank.records.reset();
  }
  run.names = collector.take_names().texts;
  run.header.farandole_trace = 1;
  run.header.ranks = world_size;
  if (run.ranks.empty()) throw CorruptInput("the recorders of " + path.string() + " have no spans");
  run.sort_ranks();
  return run;
}

}  // namespace farandole

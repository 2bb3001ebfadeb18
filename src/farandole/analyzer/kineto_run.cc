#include "farandole/analyzer/kineto_run.h"

#include <algorithm>
#include <fmt/format.h>
#include <future>
#include <map>
#include <thread>
#include <unordered_map>

#include "farandole/analyzer/statistics.h"
#include "farandole/analyzer/trace_collector.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

// What one file says: one rank, with names of its own.
struct RankFile {
  RankModel model;
  std::vector<std::string> names;
  TraceSummary summary;
  bool sound = false;
};

// Processor and devices are processes of their own there: all of them are the rank.
RankFile read_file(const std::filesystem::path& file) {
  RankFile result;
  TraceCollector collector;
  try {
    result.summary = read_trace(file, collector);
  } catch (const CorruptInput& error) {
    result.summary.warnings.push_back(error.what());
    return result;
  }
  CollectedProcess whole;
  std::int64_t next = 0;
  for (auto& [pid, process] : collector.processes())
    for (auto& [tid, thread] : process.threads) whole.threads.emplace(next++, std::move(thread));
  result.sound = whole.has_spans();
  if (!result.sound) result.summary.warnings.push_back("trace " + file.string() + " holds no spans");
  result.model = rank_model_of(0, whole);
  result.names = collector.take_names();
  return result;
}

std::vector<RankFile> read_files(const std::vector<std::filesystem::path>& files) {
  std::vector<RankFile> results(files.size());
  const std::size_t threads =
      std::min<std::size_t>(files.size(), std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::future<void>> workers;
  for (std::size_t worker = 0; worker < threads; ++worker)
    workers.push_back(std::async(std::launch::async, [&, worker] {
      for (auto i = worker; i < files.size(); i += threads) results[i] = read_file(files[i]);
    }));
  for (auto& worker : workers) worker.get();
  return results;
}

// The rank's names become indices into the run's.
void rename(RankModel& model, const std::vector<std::string>& names, RunModel& run,
            std::unordered_map<std::string, std::uint32_t>& ids) {
  std::vector<std::uint32_t> place;
  for (const auto& name : names) {
    const auto [found, is_new] = ids.try_emplace(name, static_cast<std::uint32_t>(run.names.size()));
    if (is_new) run.names.push_back(name);
    place.push_back(found->second);
  }
  auto collectives = model.collectives();
  PackedCollectives packed;
  for (auto& span : collectives) {
    span.name = place[span.name];
    span.operation = place[span.operation];
    packed.append(span);
  }
  model.packed_collectives.assign(1, std::move(packed));
}

using Ends = std::map<std::pair<std::uint16_t, std::uint32_t>, std::int64_t>;

Ends ends_of(const RankModel& rank) {
  Ends ends;
  for (const auto& span : rank.collectives())
    if (span.matchable) ends[{span.what.communicator, span.what.sequence}] = span.end;
  return ends;
}

// Shifts every rank to the first one's clock.
void align_clocks(RunModel& run) {
  run.header.clock_residual_us.assign(1, 0.0);
  const auto reference = ends_of(run.ranks.front());
  for (std::size_t i = 1; i < run.ranks.size(); ++i) {
    const auto ends = ends_of(run.ranks[i]);
    std::vector<double> differences;
    if (ends.size() == reference.size())
      for (const auto& [key, end] : ends)
        if (const auto other = reference.find(key); other != reference.end())
          differences.push_back(static_cast<double>(other->second - end));
    if (differences.empty()) {
      run.header.clock_residual_us.push_back(std::nullopt);
      continue;
    }
    const double shift = quantile(differences, 0.5);
    for (auto& difference : differences) difference = std::abs(difference - shift);
    run.ranks[i].shift_by(static_cast<std::int64_t>(shift));
    run.header.clock_residual_us.push_back(quantile(differences, 0.95) * 1e-3);
  }
}

}  // namespace

RunModel read_kineto(const std::vector<std::filesystem::path>& files) {
  RunModel run;
  run.source = TraceSource::kineto;
  std::unordered_map<std::string, std::uint32_t> ids;
  auto results = read_files(files);
  std::map<std::int64_t, std::filesystem::path> file_of_rank;
  std::int64_t next = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto& result = results[i];
    run.warnings.insert(run.warnings.end(), result.summary.warnings.begin(), result.summary.warnings.end());
    if (!result.sound) continue;
    const auto stated = result.summary.header.kineto_rank;
    const auto rank = stated && *stated >= 0 && *stated < INT32_MAX ? *stated : next;
    next = std::max(next, rank + 1);
    const auto [first, is_new] = file_of_rank.try_emplace(rank, files[i]);
    if (!is_new) {
      run.warnings.push_back(
          fmt::format("rank {} is in {} and in {}: two runs in one folder? The second is left out", rank,
                      first->second.string(), files[i].string()));
      continue;
    }
    run.events += result.summary.events;
    run.bytes += result.summary.bytes;
    if (result.summary.header.kineto_world_size) run.header.ranks = result.summary.header.kineto_world_size;
    result.model.rank = static_cast<int>(rank);
    rename(result.model, result.names, run, ids);
    run.ranks.push_back(std::move(result.model));
  }
  if (run.ranks.empty())
    throw CorruptInput(run.warnings.empty() ? "no trace of a rank can be read" : run.warnings.front());
  std::sort(run.ranks.begin(), run.ranks.end(),
            [](const RankModel& a, const RankModel& b) { return a.rank < b.rank; });
  align_clocks(run);
  return run;
}

}  // namespace farandole

#include <algorithm>
#include <fmt/format.h>
#include <future>
#include <map>
#include <thread>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/model/run_model.h"
#include "farandole/analyzer/model/trace_collector.h"
#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"

namespace farandole {
namespace {

// The contents of one file: one rank with its own names.
struct RankFile {
  RankModel model;
  CollectedNames names;
  TraceSummary summary;
  bool sound = false;
};

// Returns the times within annotations of the training thread that nothing else covers. The trace does not
// record what the thread does while none of its operators runs; it may wait for other threads.
std::vector<Interval> gaps_of(const RankModel& model) {
  std::vector<Interval> gaps;
  for (const auto& piece : innermost(model.training()))
    if (piece.category == Category::other) gaps.push_back({piece.start, piece.end});
  return gaps;
}

void fill(RankModel& model, const IntervalSet& times, Category category) {
  for (const auto& time : times.intervals()) model.packed_training.append({time.start, time.end, category});
}

// autograd runs the backward pass of GPUs on its own threads.
IntervalSet backward_of(const CollectedProcess& process) {
  std::vector<CategorySpan> spans;
  for (const auto& [tid, thread] : process.threads) thread.spans.kept().unpack(spans);
  return intervals_of(spans, Category::backward);
}

// If a collective that the host executes ends in a gap, the training thread has waited for it since the
// start of the collective.
void add_waits(RankModel& model) {
  std::vector<Interval> running;
  std::vector<std::int64_t> ends;
  for (const auto& span : model.collectives()) {
    running.push_back({span.start, span.end});
    ends.push_back(span.end);
  }
  std::sort(ends.begin(), ends.end());
  auto gaps = gaps_of(model);
  for (auto& gap : gaps) {
    const auto after = std::upper_bound(ends.begin(), ends.end(), gap.end);
    gap.end = after == ends.begin() ? gap.start : *(after - 1);
  }
  fill(model, intersect(IntervalSet(std::move(running)), IntervalSet(std::move(gaps))), Category::wait);
}

// In these files, processor and devices are separate processes. All of them belong to the rank.
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
  const auto backward = backward_of(whole);
  result.model = rank_model_of(0, whole);
  fill(result.model, intersect(backward, IntervalSet(gaps_of(result.model))), Category::backward);
  if (result.model.packed_gpu.empty()) add_waits(result.model);
  result.names = collector.take_names();
  return result;
}

// Reads the rank from "rank_3.pt.trace.json" or "host-rank3.json".
std::optional<std::int64_t> rank_in_name(const std::filesystem::path& file) {
  const auto name = file.filename().string();
  auto at = name.find("rank");
  if (at == std::string::npos) return std::nullopt;
  at += 4;
  if (at < name.size() && (name[at] == '-' || name[at] == '_' || name[at] == '.')) ++at;
  const auto behind = std::min(name.find_first_not_of("0123456789", at), name.size());
  return parse_number<std::int32_t>(std::string_view(name).substr(at, behind - at));
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

}  // namespace

RunModel read_kineto(const std::vector<std::filesystem::path>& files) {
  RunModel run;
  run.source = TraceSource::kineto;
  RunNames names(run);
  auto results = read_files(files);
  std::map<std::int64_t, std::filesystem::path> file_of_rank;
  std::int64_t next = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto& result = results[i];
    run.warnings.insert(run.warnings.end(), result.summary.warnings.begin(), result.summary.warnings.end());
    if (!result.sound) continue;
    const auto stated = result.summary.header.kineto_rank;
    const auto named = stated && *stated >= 0 && *stated < INT32_MAX ? stated : rank_in_name(files[i]);
    if (!named && files.size() > 1)
      run.warnings.push_back(
          fmt::format("{} does not contain its rank; it is taken as rank {}", files[i].string(), next));
    const auto rank = named.value_or(next);
    next = std::max(next, rank + 1);
    const auto [first, is_new] = file_of_rank.try_emplace(rank, files[i]);
    if (!is_new) {
      run.warnings.push_back(fmt::format(
          "rank {} is in {} and in {}. Perhaps the folder has two runs. The second file is left out", rank,
          first->second.string(), files[i].string()));
      continue;
    }
    run.events += result.summary.events;
    if (result.summary.header.kineto_world_size) run.header.ranks = result.summary.header.kineto_world_size;
    result.model.rank = static_cast<int>(rank);
    names.adopt(result.model, result.names);
    run.ranks.push_back(std::move(result.model));
  }
  if (run.ranks.empty())
    throw CorruptInput(run.warnings.empty() ? "no trace of a rank can be read" : run.warnings.front());
  run.sort_ranks();
  align_by_collectives(run);
  return run;
}

}  // namespace farandole

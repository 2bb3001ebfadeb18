#include "farandole/analyzer/run_model.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "farandole/analyzer/formats/horovod_run.h"
#include "farandole/analyzer/formats/kineto_run.h"
#include "farandole/analyzer/formats/nsys_run.h"
#include "farandole/analyzer/formats/recorder_run.h"
#include "farandole/analyzer/trace_collector.h"
#include "farandole/analyzer/trace_probe.h"
#include "farandole/base/error.h"

namespace farandole {
namespace {

void add_ranks(RunModel& model, std::map<std::int64_t, CollectedProcess>& processes) {
  const bool named =
      std::any_of(processes.begin(), processes.end(), [](const auto& p) { return p.second.rank; });
  if (!named)
    model.warnings.push_back("no process of the trace says which rank it is: they are counted by their pid");
  std::map<std::int64_t, std::int64_t> pid_of_rank;
  std::int64_t next = 0;
  for (auto& [pid, process] : processes) {
    if (!process.has_spans()) continue;
    if (!named) process.rank = next++;
    if (!process.rank || *process.rank < 0 || *process.rank > INT32_MAX) {
      model.warnings.push_back(
          fmt::format("process {} of the trace is no rank: its events are left out", pid));
      continue;
    }
    const auto [first, is_new] = pid_of_rank.try_emplace(*process.rank, pid);
    if (!is_new) {
      model.warnings.push_back(fmt::format(
          "rank {} is there twice (processes {} and {}): two runs in one trace? The second is left out",
          *process.rank, first->second, pid));
      continue;
    }
    model.ranks.push_back(rank_model_of(static_cast<int>(*process.rank), process));
  }
  std::sort(model.ranks.begin(), model.ranks.end(),
            [](const RankModel& a, const RankModel& b) { return a.rank < b.rank; });
}

std::string list_of(const std::vector<std::int64_t>& ranks) {
  const std::size_t shown = std::min<std::size_t>(ranks.size(), 8);
  const std::vector<std::int64_t> first(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(shown));
  return fmt::format("rank{} {}{}", ranks.size() == 1 ? "" : "s", fmt::join(first, ", "),
                     ranks.size() > shown ? fmt::format(" and {} more", ranks.size() - shown) : "");
}

void name_missing_and_foreign_ranks(RunModel& model) {
  const auto expected = model.facts.ranks ? model.facts.ranks : model.header.ranks;
  if (!expected) return;
  if (model.facts.ranks && model.header.ranks && *model.facts.ranks != *model.header.ranks)
    model.warnings.push_back(
        fmt::format("run.json says {} ranks, the trace says {}: are both of the same run?",
                    *model.facts.ranks, *model.header.ranks));
  std::vector<std::int64_t> missing, foreign;
  std::int64_t next = 0;
  for (const auto& rank : model.ranks) {
    for (; next < std::min<std::int64_t>(rank.rank, *expected) && missing.size() < 100'000; ++next)
      missing.push_back(next);
    next = std::max<std::int64_t>(next, rank.rank + std::int64_t{1});
    if (rank.rank >= *expected) foreign.push_back(rank.rank);
  }
  for (; next < *expected && missing.size() < 100'000; ++next) missing.push_back(next);
  if (!missing.empty())
    model.warnings.push_back(fmt::format("the trace has nothing of {} (of {})", list_of(missing), *expected));
  if (!foreign.empty())
    model.warnings.push_back(fmt::format("the trace has {}, but the run has only {}: two runs mixed up?",
                                         list_of(foreign), *expected));
}

void settle_hosts(RunModel& model) {
  for (auto& rank : model.ranks) {
    const auto index = static_cast<std::size_t>(rank.rank);
    if (index >= model.facts.hosts.size()) continue;
    const auto& host = model.facts.hosts[index];
    if (rank.host.empty())
      rank.host = host;
    else if (rank.host != host && !host.empty())
      model.warnings.push_back(
          fmt::format("rank {} ran on {} by the trace, on {} by run.json: two runs mixed up?", rank.rank,
                      rank.host, host));
  }
}

struct RunFiles {
  std::filesystem::path trace, run_json;
};

RunFiles find_files(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw UserError(path.string() + " does not exist; give a run directory or a Chrome trace");
  if (!fs::is_directory(path, ignored)) return {path, path.parent_path() / "run.json"};
  for (const auto* name : {"timeline.json.gz", "timeline.json"})
    if (fs::exists(path / name, ignored)) return {path / name, path / "run.json"};
  throw UserError(path.string() +
                  " has no timeline.json.gz: was it recorded with --timeline off, or has the run not ended? "
                  "`farandole timeline merge` makes one from its recorder folder");
}

bool is_trace_name(const std::filesystem::path& file) {
  const auto name = file.filename().string();
  return name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".sqlite");
}

// The traces of a folder that is no run directory, where they are those of one of other profilers.
std::vector<std::filesystem::path> profiles_in(const std::filesystem::path& folder, TraceSource source) {
  std::error_code ignored;
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::is_directory(folder, ignored) ||
      std::filesystem::exists(folder / "timeline.json.gz", ignored) ||
      std::filesystem::exists(folder / "timeline.json", ignored))
    return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.is_regular_file(ignored) && is_trace_name(entry.path()) && probe_trace(entry.path()) == source)
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

RunModel read_one_trace(const RunFiles& files, RunFacts facts, TraceSource source) {
  RunModel model;
  model.source = source;
  model.facts = std::move(facts);
  model.warnings = model.facts.warnings;
  TraceCollector collector;
  auto summary = read_trace(files.trace, collector);
  model.header = std::move(summary.header);
  model.events = summary.events;
  model.bytes = summary.bytes;
  model.warnings.insert(model.warnings.end(), summary.warnings.begin(), summary.warnings.end());
  model.names = collector.take_names();
  add_ranks(model, collector.processes());
  if (model.ranks.empty())
    throw CorruptInput("trace " + files.trace.string() + " holds no spans of any rank");
  return model;
}

// A run directory without a merged trace, or one recorder's file.
bool is_of_recorders(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.extension() == ".ftl") return std::filesystem::is_regular_file(path, ignored);
  return std::filesystem::is_directory(path / "recorder", ignored) &&
         !std::filesystem::exists(path / "timeline.json.gz", ignored) &&
         !std::filesystem::exists(path / "timeline.json", ignored);
}

RunModel read_any(const std::filesystem::path& path) {
  if (is_of_recorders(path)) {
    auto model = read_recorders(path);
    model.facts = read_run_facts(path / "run.json");
    model.warnings.insert(model.warnings.begin(), model.facts.warnings.begin(), model.facts.warnings.end());
    return model;
  }
  if (const auto files = profiles_in(path, TraceSource::kineto); !files.empty()) return read_kineto(files);
  if (const auto files = profiles_in(path, TraceSource::nsys); !files.empty()) return read_nsys(files);
  const auto files = find_files(path);
  auto facts = read_run_facts(files.run_json);
  const auto source = probe_trace(files.trace);
  if (source == TraceSource::kineto) return read_kineto({files.trace});
  if (source == TraceSource::nsys) return read_nsys({files.trace});
  if (source == TraceSource::horovod) return read_horovod(files.trace);
  return read_one_trace(files, std::move(facts), source);
}

}  // namespace

RunModel read_run(const std::filesystem::path& path) {
  auto model = read_any(path);
  model.path = path;
  name_missing_and_foreign_ranks(model);
  settle_hosts(model);
  return model;
}

}  // namespace farandole

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <string_view>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/model/trace_collector.h"
#include "farandole/base/error.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"
#include "farandole/timeline/chrome_trace/trace_scanner.h"
#include "farandole/timeline/merge/run_recorders.h"

namespace farandole {
namespace {

void name_missing_and_foreign_ranks(RunModel& model) {
  const auto expected = model.facts.ranks ? model.facts.ranks : model.header.ranks;
  if (!expected) return;
  if (model.facts.ranks && model.header.ranks && *model.facts.ranks != *model.header.ranks)
    model.warnings.push_back(
        fmt::format("run.json has {} ranks, and the trace has {}; they may belong to different runs",
                    *model.facts.ranks, *model.header.ranks));
  std::vector<int> missing, foreign;
  std::int64_t next = 0;
  for (const auto& rank : model.ranks) {
    for (; next < std::min<std::int64_t>(rank.rank, *expected) && missing.size() < 100'000; ++next)
      missing.push_back(static_cast<int>(next));
    next = std::max<std::int64_t>(next, rank.rank + std::int64_t{1});
    if (rank.rank >= *expected) foreign.push_back(rank.rank);
  }
  for (; next < *expected && missing.size() < 100'000; ++next) missing.push_back(static_cast<int>(next));
  if (!missing.empty())
    model.warnings.push_back(
        fmt::format("the trace has no events of {} (of {})", describe_ranks(missing), *expected));
  if (!foreign.empty())
    model.warnings.push_back(
        fmt::format("the trace has {}, but the run has only {}; the trace may belong to another run",
                    describe_ranks(foreign), *expected));
}

// Names ranks that ran on another host than run.json records. Sets the hosts of ranks whose trace has none.
void settle_hosts(RunModel& model) {
  for (auto& rank : model.ranks) {
    const auto index = static_cast<std::size_t>(rank.rank);
    if (index >= model.facts.hosts.size()) continue;
    const auto& host = model.facts.hosts[index];
    if (rank.host.empty())
      rank.host = host;
    else if (rank.host != host && !host.empty())
      model.warnings.push_back(fmt::format(
          "rank {} ran on {} according to the trace and on {} according to run.json; they may belong to "
          "different runs",
          rank.rank, rank.host, host));
  }
}

bool is_sqlite(const std::filesystem::path& file) {
  TraceWindow window(file);
  window.refill();
  return std::string_view(window.data(), window.size()).starts_with("SQLite format 3");
}

// A process that states its rank is not one of PyTorch's profiler, whose processes are a host
// and its devices.
TraceSource source_of(const TraceSummary& summary, TraceCollector& collector) {
  const auto& processes = collector.processes();
  if (summary.header.farandole_trace) return TraceSource::farandole;
  if (std::any_of(processes.begin(), processes.end(), [](const auto& p) { return p.second.rank; }))
    return TraceSource::chrome;
  if (collector.origin().is_kineto || summary.header.kineto_rank) return TraceSource::kineto;
  if (collector.origin().is_xla) return TraceSource::xla;
  return collector.origin().is_horovod ? TraceSource::horovod : TraceSource::chrome;
}

// Processes without a rank are numbered by their ids, or by the texts that stand for ids.
std::vector<CollectedProcess*> by_id(std::map<std::int64_t, CollectedProcess>& processes) {
  std::vector<std::pair<std::int64_t, CollectedProcess*>> all;
  for (auto& [pid, process] : processes) all.emplace_back(pid, &process);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.first < 0 && b.first < 0 && is_before(a.second->name, b.second->name);
  });
  std::vector<CollectedProcess*> sorted;
  for (const auto& [pid, process] : all) sorted.push_back(process);
  return sorted;
}

void add_ranks(RunModel& model, std::map<std::int64_t, CollectedProcess>& processes) {
  const bool named =
      std::any_of(processes.begin(), processes.end(), [](const auto& p) { return p.second.rank; });
  if (!named)
    model.warnings.push_back("no process of the trace has a rank; ranks are numbered by process id");
  std::map<std::int64_t, std::int64_t> pid_of_rank;
  std::int64_t next = 0;
  if (!named)
    for (auto* process : by_id(processes))
      if (process->has_spans()) process->rank = next++;
  for (auto& [pid, process] : processes) {
    if (!process.has_spans()) continue;
    if (!process.rank || *process.rank < 0 || *process.rank > INT32_MAX) {
      model.warnings.push_back(
          fmt::format("process {} of the trace has no rank; its events are left out", pid));
      continue;
    }
    const auto [first, is_new] = pid_of_rank.try_emplace(*process.rank, pid);
    if (!is_new) {
      model.warnings.push_back(fmt::format(
          "rank {} occurs twice (processes {} and {}). Perhaps the trace has two runs. The second process "
          "is left out",
          *process.rank, first->second, pid));
      continue;
    }
    model.ranks.push_back(rank_model_of(static_cast<int>(*process.rank), process));
    if (!named) model.ranks.back().process = pid < 0 ? process.name : fmt::format("process {}", pid);
  }
  model.sort_ranks();
}

std::filesystem::path trace_in(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw UserError(path.string() + " does not exist; give a run directory or a Chrome trace");
  if (!fs::is_directory(path, ignored)) return path;
  for (const auto* name : {"timeline.json.gz", "timeline.json"})
    if (fs::exists(path / name, ignored)) return path / name;
  if (const auto foreign = foreign_format(path)) throw CorruptInput(*foreign);
  throw UserError(
      path.string() +
      " has no timeline.json.gz and no recorder. Either nothing was recorded (farandole train --timeline off), or "
      "this is no run directory; `farandole run --run-dir RUN -- PROGRAM` records, and needs --trace-torch for a "
      "program of PyTorch in Python, --trace-mpi for the MPI calls of another one");
}

// For a recorder file, run.json is also searched above its folder.
std::filesystem::path facts_file_of(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return run_json_of(path);
  const auto beside = run_json_of(path.parent_path());
  if (path.extension() != ".ftl" || std::filesystem::exists(beside, ignored)) return beside;
  return run_json_of(std::filesystem::absolute(path, ignored).parent_path().parent_path());
}

bool has_trace_name(const std::filesystem::path& file) {
  const auto name = file.filename().string();
  if (name == "run.json" || name == "report.json") return false;
  return name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".sqlite") ||
         name.ends_with(".sqlite.gz");
}

// The traces of other profilers in a folder that is not a run directory, one per rank. Returns std::nullopt
// if there are none.
std::optional<RunModel> read_profiles(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored) ||
      std::filesystem::exists(folder / "timeline.json.gz", ignored) ||
      std::filesystem::exists(folder / "timeline.json", ignored))
    return std::nullopt;
  std::vector<std::filesystem::path> databases, texts;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.is_regular_file(ignored) && has_trace_name(entry.path()))
      (is_sqlite(entry.path()) ? databases : texts).push_back(entry.path());
  const auto in_order = [](const auto& a, const auto& b) {
    return is_before(a.filename().string(), b.filename().string());
  };
  std::sort(databases.begin(), databases.end(), in_order);
  std::sort(texts.begin(), texts.end(), in_order);
  auto model = read_kineto(texts);
  if (!model) model = read_xla(texts);
  auto& others = model ? databases : texts;
  if (!model && databases.empty()) return std::nullopt;
  if (!model) model = read_nsys(databases);
  std::vector<std::string> names;
  for (const auto& file : others) names.push_back(file.filename().string());
  warn_of_others(*model, names);
  return model;
}

// Copies the clock errors of all ranks from the trace's header to the ranks.
void settle_clocks(RunModel& model) {
  const auto& residuals = model.header.clock_residual_us;
  model.clocks_stated = !residuals.empty();
  if (!model.clocks_stated) return;
  for (auto& rank : model.ranks) {
    const auto index = static_cast<std::size_t>(rank.rank);
    rank.clock_residual_us = index < residuals.size() ? residuals[index] : std::nullopt;
  }
}

RunModel run_of_processes(const std::filesystem::path& file, TraceContents contents) {
  RunModel model;
  model.source = contents.source;
  model.header = std::move(contents.summary.header);
  model.events = contents.summary.events;
  model.damage = std::move(contents.summary.damage);
  model.warnings = std::move(contents.summary.warnings);
  model.names = contents.collector.take_names().texts;
  add_ranks(model, contents.collector.processes());
  if (model.ranks.empty()) throw CorruptInput("trace " + file.string() + " has no spans of any rank");
  settle_clocks(model);
  return model;
}

// Returns whether `path` is a run directory without a trace of all that was recorded, or a recorder file.
bool is_of_recorders(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.extension() == ".ftl") return std::filesystem::is_regular_file(path, ignored);
  return std::filesystem::is_directory(path / "recorder", ignored) && !has_whole_trace(path);
}

// In large runs the merge keeps only a sample of the ranks (--merge-limit). The recorder files next to the
// trace are used instead if they have more ranks and can be read.
void prefer_recorders(const std::filesystem::path& path, RunModel& model) {
  std::error_code ignored;
  if (model.source != TraceSource::farandole || model.ranks.size() >= model.world_size() ||
      is_of_recorders(path) || !std::filesystem::is_directory(path / "recorder", ignored))
    return;
  try {
    if (recorder_files(path).size() <= model.ranks.size()) return;
    auto recorded = read_recorders(path);
    if (recorded.ranks.size() <= model.ranks.size()) return;
    recorded.warnings.push_back(fmt::format(
        "the merged trace has {} of {} ranks; this report uses the recorder files of {} ranks instead",
        model.ranks.size(), model.world_size(), recorded.ranks.size()));
    recorded.facts = std::move(model.facts);
    model = std::move(recorded);
  } catch (const Error& error) {
    model.warnings.push_back(fmt::format("the recorder files cannot replace the trace: {}", error.what()));
  }
}

// Little may be left of a damaged trace, but the recorder files from which it was merged have all events.
// Returns nullopt if there are none or they cannot be read.
std::optional<RunModel> recorders_instead(const std::filesystem::path& path, const std::string& damage) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path / "recorder", ignored)) return std::nullopt;
  try {
    auto model = read_recorders(path);
    model.warnings.push_back(damage + "; this report uses the recorder files instead");
    return model;
  } catch (const Error&) {
    return std::nullopt;
  }
}

RunModel read_trace_file(const std::filesystem::path& file) {
  try {
    if (is_sqlite(file)) return read_nsys({file});
    auto contents = read_contents(file);
    if (contents.source == TraceSource::kineto) return kineto_run(file, std::move(contents));
    if (contents.source == TraceSource::horovod) return read_horovod(file);
    if (contents.source == TraceSource::xla) return xla_run(file, std::move(contents));
    return run_of_processes(file, std::move(contents));
  } catch (const CorruptInput&) {
    if (const auto foreign = foreign_format(file)) throw CorruptInput(*foreign);
    throw;
  }
}

// The merged trace is read first. The recorder files are read only if the trace lacks something, because they
// were faster only when the page cache held them. Wall time of `farandole analyze`, medians of 5 interleaved
// runs on two cores, trace and recorder files:
//   2 ranks (quickstart):          warm 44 and 38 ms, cold 67 and 71 ms, peak memory 14 and 14 MiB
//   1,024 ranks (1 M events):      warm 710 and 535 ms, cold 1.5 and 2.0 s, peak memory 26 and 47 MiB
RunModel read_any(const std::filesystem::path& path) {
  if (is_of_recorders(path)) {
    auto model = read_recorders(path);
    model.warnings.emplace_back("there is no merged trace; this report uses the recorder files");
    return model;
  }
  if (auto profiles = read_profiles(newest_capture(path))) return std::move(*profiles);
  const auto file = trace_in(path);
  try {
    auto model = read_trace_file(file);
    if (!model.damage.empty())
      if (auto recorded = recorders_instead(path, model.damage)) return std::move(*recorded);
    return model;
  } catch (const CorruptInput& error) {
    if (auto recorded = recorders_instead(path, error.what())) return std::move(*recorded);
    throw;
  }
}

}  // namespace

TraceContents read_contents(const std::filesystem::path& file) {
  TraceContents contents;
  contents.summary = read_trace(file, contents.collector);
  if (contents.collector.is_uncertain()) {
    contents.collector = TraceCollector(true);
    contents.summary = read_trace(file, contents.collector);
  }
  contents.source = source_of(contents.summary, contents.collector);
  return contents;
}

void warn_of_others(RunModel& model, const std::vector<std::string>& files) {
  if (files.empty()) return;
  model.warnings.push_back(
      fmt::format("{} {} left out, because of damage or another format than the other files",
                  describe_list(files, 8), files.size() == 1 ? "is" : "are"));
}

std::optional<std::int64_t> rank_in_name(const std::filesystem::path& file) {
  const auto name = file.filename().string();
  auto at = name.find("rank");
  if (at == std::string::npos) return std::nullopt;
  at += 4;
  if (at < name.size() && (name[at] == '-' || name[at] == '_' || name[at] == '.')) ++at;
  const auto behind = std::min(name.find_first_not_of("0123456789", at), name.size());
  return parse_number<std::int32_t>(std::string_view(name).substr(at, behind - at));
}

bool is_before(std::string_view name, std::string_view other) {
  const auto digits = [](std::string_view text) {
    return text.substr(0, std::min(text.find_first_not_of("0123456789"), text.size()));
  };
  const auto whole = std::pair(name, other);
  while (!name.empty() && !other.empty()) {
    auto a = digits(name), b = digits(other);
    const bool are_numbers = !a.empty() && !b.empty();
    if (!are_numbers) a = name.substr(0, 1), b = other.substr(0, 1);
    name.remove_prefix(a.size());
    other.remove_prefix(b.size());
    for (auto* number : {&a, &b})
      while (are_numbers && number->size() > 1 && number->front() == '0') number->remove_prefix(1);
    if (a.size() != b.size()) return a.size() < b.size();
    if (a != b) return a < b;
  }
  return name.empty() != other.empty() ? name.empty() : whole.first < whole.second;
}

RunModel read_run(const std::filesystem::path& path) {
  auto model = read_any(path);
  const auto facts_file = facts_file_of(path);
  model.facts = read_run_facts(facts_file);
  prefer_recorders(path, model);
  model.log = read_training_log(facts_file.parent_path() / "metrics.jsonl");
  model.warnings.insert(model.warnings.begin(), model.facts.warnings.begin(), model.facts.warnings.end());
  model.warnings.insert(model.warnings.end(), model.log.warnings.begin(), model.log.warnings.end());
  name_missing_and_foreign_ranks(model);
  if (model.source == TraceSource::farandole) warn_of_ranks(path, model);
  settle_hosts(model);
  return model;
}

}  // namespace farandole

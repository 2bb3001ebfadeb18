#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <string_view>

#include "farandole/analyzer/formats/readers.h"
#include "farandole/analyzer/model/trace_collector.h"
#include "farandole/base/error.h"
#include "farandole/base/run/run_files.h"
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

// Detects from the first bytes, plain or compressed, which tool wrote a trace.
// An unknown format is TraceSource::chrome.
TraceSource probe_trace(const std::filesystem::path& file) {
  TraceWindow window(file);
  window.refill();
  const std::string_view text(window.data(), window.size());
  const auto has = [&](std::string_view part) { return text.find(part) != std::string_view::npos; };
  if (text.starts_with("SQLite format 3")) return TraceSource::nsys;
  if (has("\"farandole_trace\"")) return TraceSource::farandole;
  if (has("\"NEGOTIATE_")) return TraceSource::horovod;
  if (has("\"schemaVersion\"") || has("\"distributedInfo\"") || has("\"deviceProperties\""))
    return TraceSource::kineto;
  return TraceSource::chrome;
}

void add_ranks(RunModel& model, std::map<std::int64_t, CollectedProcess>& processes) {
  const bool named =
      std::any_of(processes.begin(), processes.end(), [](const auto& p) { return p.second.rank; });
  if (!named)
    model.warnings.push_back("no process of the trace has a rank; ranks are numbered by process id");
  std::map<std::int64_t, std::int64_t> pid_of_rank;
  std::int64_t next = 0;
  for (auto& [pid, process] : processes) {
    if (!process.has_spans()) continue;
    if (!named) process.rank = next++;
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
  throw UserError(
      path.string() +
      " has no timeline.json.gz and no recorder. Either nothing was recorded (farandole train --timeline off), or "
      "this is no run directory; `farandole run --run-dir RUN -- PROGRAM` records");
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

// The traces in a folder that is not a run directory, if another profiler has written them.
struct Profiles {
  TraceSource source = TraceSource::chrome;
  std::vector<std::filesystem::path> files;
  std::vector<std::string> others;  // Files with names of traces that have another format.
};

// Returns nullopt if the file is damaged at its beginning.
std::optional<TraceSource> source_of(const std::filesystem::path& file) {
  try {
    return probe_trace(file);
  } catch (const CorruptInput&) {
    return std::nullopt;
  }
}

Profiles profiles_in(const std::filesystem::path& folder) {
  Profiles profiles;
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored) ||
      std::filesystem::exists(folder / "timeline.json.gz", ignored) ||
      std::filesystem::exists(folder / "timeline.json", ignored))
    return profiles;
  std::map<std::filesystem::path, std::optional<TraceSource>> sources;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.is_regular_file(ignored) && has_trace_name(entry.path()))
      sources[entry.path()] = source_of(entry.path());
  for (const auto wanted : {TraceSource::nsys, TraceSource::kineto})
    if (std::any_of(sources.begin(), sources.end(), [&](const auto& file) { return file.second == wanted; }))
      profiles.source = wanted;
  if (profiles.source == TraceSource::chrome) return profiles;
  for (const auto& [file, source] : sources) {
    if (source == profiles.source)
      profiles.files.push_back(file);
    else
      profiles.others.push_back(file.filename().string());
  }
  return profiles;
}

RunModel read_profiles(const Profiles& profiles) {
  auto model =
      profiles.source == TraceSource::kineto ? read_kineto(profiles.files) : read_nsys(profiles.files);
  if (!profiles.others.empty())
    model.warnings.push_back(
        fmt::format("{} {} left out, because of damage or another format than the other files",
                    describe_list(profiles.others, 8), profiles.others.size() == 1 ? "is" : "are"));
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

RunModel read_one_trace(const std::filesystem::path& file, TraceSource source) {
  RunModel model;
  model.source = source;
  TraceCollector collector;
  auto summary = read_trace(file, collector);
  model.header = std::move(summary.header);
  model.events = summary.events;
  model.damage = std::move(summary.damage);
  model.warnings.insert(model.warnings.end(), summary.warnings.begin(), summary.warnings.end());
  model.names = collector.take_names().texts;
  add_ranks(model, collector.processes());
  if (model.ranks.empty()) throw CorruptInput("trace " + file.string() + " has no spans of any rank");
  settle_clocks(model);
  return model;
}

// Returns whether `path` is a run directory without a merged trace, or a recorder file.
bool is_of_recorders(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.extension() == ".ftl") return std::filesystem::is_regular_file(path, ignored);
  return std::filesystem::is_directory(path / "recorder", ignored) &&
         !std::filesystem::exists(path / "timeline.json.gz", ignored) &&
         !std::filesystem::exists(path / "timeline.json", ignored);
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
  const auto source = probe_trace(file);
  if (source == TraceSource::kineto) return read_kineto({file});
  if (source == TraceSource::nsys) return read_nsys({file});
  if (source == TraceSource::horovod) return read_horovod(file);
  return read_one_trace(file, source);
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
  if (const auto profiles = profiles_in(path); !profiles.files.empty()) return read_profiles(profiles);
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

RunModel read_run(const std::filesystem::path& path) {
  auto model = read_any(path);
  const auto facts_file = facts_file_of(path);
  model.facts = read_run_facts(facts_file);
  prefer_recorders(path, model);
  model.log = read_training_log(facts_file.parent_path() / "metrics.jsonl");
  model.warnings.insert(model.warnings.begin(), model.facts.warnings.begin(), model.facts.warnings.end());
  model.warnings.insert(model.warnings.end(), model.log.warnings.begin(), model.log.warnings.end());
  name_missing_and_foreign_ranks(model);
  settle_hosts(model);
  return model;
}

}  // namespace farandole

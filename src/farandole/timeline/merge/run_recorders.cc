#include "farandole/timeline/merge/run_recorders.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/host.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/text/phrases.h"
#include "farandole/timeline/merge/rank_choice.h"
#include "farandole/timeline/merge/record_source.h"
#include "farandole/timeline/merge/trace_merge.h"
#include "farandole/timeline/recorder/node_file.h"
#include "farandole/timeline/run_timeline.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

struct OpenedFile {
  RecorderReport report;
  std::optional<RunStart> start;         // std::nullopt if the header in the file cannot be trusted
  std::optional<RankInfo> header;        // of a rank that is not selected
  std::unique_ptr<RecordSource> source;  // null if the file cannot be read or the rank is not selected
};

RunStart start_of(const RecorderFile& file) {
  return {file.start_realtime_ns(), file.world_size(), file.last_realtime_ns()};
}

// Reads the records only of selected ranks.
void survey_file(const fs::path& path, const RankSet& selected, OpenedFile& opened) try {
  RecorderReport& report = opened.report;
  report.file = path;
  auto file = std::make_unique<RecorderFile>(path);
  report.rank = file->rank();
  report.closed = file->closed();
  report.dropped = file->dropped();
  report.problems = file->problems();
  if (report.problems.empty()) opened.start = start_of(*file);
  for (const RecorderThread& thread : file->threads()) {
    report.overwritten += thread.overwritten;
    report.records += thread.recorded - thread.overwritten;
  }
  report.readable = true;
  if (!selected.contains(report.rank)) {
    opened.header = header_of(*file);
    return;
  }
  RecordDamage damage;
  std::vector<Record> block(1024);
  for (std::size_t slot = 0; slot < file->threads().size() && damage.records == 0; ++slot) {
    const RecorderThread& thread = file->threads()[slot];
    for (std::uint64_t index = thread.overwritten; index < thread.recorded && damage.records == 0;)
      index += file->read_records(slot, index, block, &damage);
  }
  opened.source = open_source(std::move(file));
  report.damaged = opened.source->info().damaged;
  report.records -= report.damaged;
  if (report.damaged > 0)
    report.problems.push_back(
        fmt::format("{}, offset {}: {} record{} damaged or missing; this is the first one", path.string(),
                    damage.first_offset, report.damaged, report.damaged == 1 ? "" : "s"));
} catch (const Error& error) {
  opened.report.readable = false;
  opened.report.problems.push_back(error.what());
}

// Of two files of one rank, leaves one out. A damaged header may contain a wrong rank, so a file with a sound
// header comes first.
void leave_out_same_ranks(std::vector<OpenedFile>& files) {
  std::set<int> claimed;
  for (const bool sound : {true, false})
    for (OpenedFile& file : files) {
      if (!file.report.readable || file.start.has_value() != sound) continue;
      if (claimed.insert(file.report.rank).second) continue;
      file.report.problems.push_back(fmt::format("{}: left out because another file also belongs to rank {}",
                                                 file.report.file.string(), file.report.rank));
      file.source = nullptr;
    }
}

// Returns the number of files left out.
std::size_t leave_out_earlier(std::vector<OpenedFile>& files) {
  std::vector<RunStart> starts;
  for (const auto& file : files)
    if (file.start) starts.push_back(*file.start);
  const RunStart last = last_of(starts);
  return std::erase_if(files,
                       [&](const OpenedFile& file) { return file.start && is_earlier(*file.start, last); });
}

// The files of ranks that cannot be read are not missing: the reports name them.
std::string missing_ranks_text(const std::vector<OpenedFile>& files, const RankSet& selected) {
  int world_size = 0;
  std::set<int> there;
  for (const OpenedFile& file : files) {
    if (file.start) world_size = std::max(world_size, file.start->world_size);
    if (file.report.readable) there.insert(file.report.rank);
    if (const auto rank = rank_of_recorder(file.report.file)) there.insert(*rank);
  }
  std::vector<int> missing;
  for (int rank = 0; rank < world_size; ++rank)
    if (selected.contains(rank) && !there.contains(rank)) missing.push_back(rank);
  return missing.empty() ? ""
                         : fmt::format("there is no flight recorder of {} (the run has {} ranks)",
                                       describe_ranks(missing), world_size);
}

void choose_of(std::vector<std::unique_ptr<RecordSource>> sources, std::span<const RankInfo> others,
               const RunMergeOptions& options, RunRecorders& run) {
  std::vector<RankTimeline> ranks = with_clocks(std::move(sources), others);
  const RankChoice choice = choose_ranks(ranks, options.merge_limit);
  run.left_out = left_out_text(ranks, choice);
  const bool all_steps = options.steps.first == 0 && options.steps.last == INT64_MAX;
  for (const std::size_t i : choice.chosen) {
    run.ranks.push_back(std::move(ranks[i]));
    auto& records = run.ranks.back().records;
    if (!all_steps) records = steps_of(std::move(records), options.steps);
  }
}

}  // namespace

std::vector<fs::path> recorder_files(const fs::path& run) {
  std::error_code failure;
  if (fs::is_regular_file(run, failure)) return is_node_file(run) ? parts_of(run) : std::vector{run};
  if (!fs::is_directory(run, failure))
    throw UserError("there is no run directory or file " + run.string() +
                    "; give a run directory or a recorder's file");
  const fs::path folder = fs::is_directory(run / "recorder", failure) ? run / "recorder" : run;
  std::vector<fs::path> files;
  for (const auto& destination : recorders_in(folder, failure)) files.push_back(readable_at(destination));
  if (failure) throw UserError("read the folder " + folder.string() + ": " + failure.message());
  if (files.empty())
    throw UserError(folder.string() +
                    " contains no recorder's file (*.ftl); was the run started with --timeline off?");
  return files;
}

bool RunRecorders::sound() const {
  return std::all_of(files.begin(), files.end(), [](const RecorderReport& file) { return file.sound(); });
}

RunRecorders open_run(const std::vector<fs::path>& files, const RunMergeOptions& options) {
  std::vector<OpenedFile> opened;
  std::size_t open = 0;
  for (const fs::path& file : files) {
    allow_open_files(options.ranks.all() ? files.size() : open + 1, "merge fewer at a time");
    survey_file(file, options.ranks, opened.emplace_back());
    open += opened.back().source != nullptr ? 1 : 0;
  }
  RunRecorders result;
  result.earlier = earlier_starts_text(leave_out_earlier(opened));
  leave_out_same_ranks(opened);
  result.missing = missing_ranks_text(opened, options.ranks);
  std::vector<std::unique_ptr<RecordSource>> sources;
  std::vector<RankInfo> others;
  bool any = false;
  for (auto& [report, start, header, source] : opened) {
    any |= report.readable;
    if (source != nullptr)
      sources.push_back(std::move(source));
    else if (header && start)
      others.push_back(*std::move(header));
    result.files.push_back(std::move(report));
  }
  if (!any)
    throw CorruptInput(
        files.size() == 1
            ? result.files[0].problems[0]
            : fmt::format("none of the {} recorders' files can be read; the first problem is: {}",
                          files.size(), result.files[0].problems[0]));
  if (sources.empty())
    throw UserError("none of the run's files belongs to the selected ranks" +
                    (result.earlier.empty() ? "" : "; " + result.earlier));
  choose_of(std::move(sources), others, options, result);
  return result;
}

std::vector<RankSign> read_signs(const fs::path& run) {
  std::vector<RankSign> signs;
  std::vector<RunStart> starts;
  std::vector<fs::path> files;
  try {
    files = recorder_files(run);
  } catch (const UserError&) {
  }
  for (const auto& path : files) try {
      const RecorderFile file(path);
      if (!file.problems().empty()) continue;
      starts.push_back(start_of(file));
      signs.push_back({path, file.rank(), file.host(), file.clock(), file.process(), starts.back(),
                       file.closed(), !file.clock_samples().empty()});
    } catch (const Error&) {
    }
  const auto last = last_of(starts);
  std::erase_if(signs, [&](const RankSign& sign) { return is_earlier(sign.start, last); });
  return signs;
}

bool has_whole_trace(const fs::path& run) {
  // At the end of a run with a launcher, the ranks close their recorders after rank 0 has written the trace.
  constexpr std::int64_t closing_takes_ns = 10'000'000'000;
  const auto trace = std::max(changed_ns(run / "timeline.json.gz"), changed_ns(run / "timeline.json"));
  std::error_code ignored;
  const auto files = staged_files_in(run / "recorder", ".ftl", ignored);
  return trace >= 0 && std::all_of(files.begin(), files.end(), [&](const fs::path& file) {
           return changed_ns(readable_at(file)) <= trace + closing_takes_ns;
         });
}

bool complete_run(const fs::path& run) {
  std::error_code ignored;
  if (!fs::is_directory(run / "recorder", ignored)) return false;
  const auto signs = read_signs(run);
  const bool over = std::all_of(signs.begin(), signs.end(), [](const RankSign& sign) {
    return sign.closed || recorder_has_ended(sign.file);
  });
  if (signs.empty() || !over) return false;
  if (!fs::exists(run / "launch/job.json", ignored)) pack_nodes(run);
  if (has_whole_trace(run)) return false;
  merge_run(run);
  return true;
}

RunStart last_of(const std::vector<RunStart>& starts) {
  const auto last = std::max_element(starts.begin(), starts.end(), [](const auto& a, const auto& b) {
    return a.realtime_ns < b.realtime_ns;
  });
  return last != starts.end() ? *last : RunStart{};
}

bool is_earlier(const RunStart& start, const RunStart& last) {
  const bool other_size = start.world_size > 0 && last.world_size > 0 && start.world_size != last.world_size;
  return start.realtime_ns + (other_size ? 0 : clocks_differ_ns) < last.realtime_ns &&
         (other_size || start.last_ns < last.realtime_ns);
}

std::string earlier_starts_text(std::size_t recorders) {
  if (recorders == 0) return "";
  return fmt::format("{} flight recorder{} of an earlier start: left out", recorders,
                     recorders == 1 ? " is" : "s are");
}

TimelineOptions run_timeline(const std::filesystem::path& run_dir, int rank, int world_size) {
  TimelineOptions options;
  options.file = recorder_file(run_dir, rank);
  options.rank = rank;
  options.world_size = world_size;
  options.host = host_name();
  return options;
}

MergedRun merge_run(const std::filesystem::path& run_dir, const std::filesystem::path& output,
                    std::size_t merge_limit) {
  RunMergeOptions options;
  options.merge_limit = merge_limit;
  auto run = open_run(recorder_files(run_dir), options);
  MergedRun merged;
  merged.trace = output.empty() ? run_dir / "timeline.json.gz" : output;
  for (auto& file : run.files)
    merged.problems.insert(merged.problems.end(), file.problems.begin(), file.problems.end());
  if (!run.missing.empty()) merged.problems.push_back(run.missing);
  const auto result = merge_timelines(std::move(run.ranks), merged.trace);
  merged.events = result.events;
  merged.overwritten = result.overwritten;
  merged.dropped = result.dropped;
  merged.damaged = result.damaged;
  return merged;
}

}  // namespace farandole

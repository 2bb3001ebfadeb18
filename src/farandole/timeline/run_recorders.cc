#include "farandole/timeline/run_recorders.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>

#include "farandole/base/error.h"
#include "farandole/base/node_file.h"
#include "farandole/base/open_files.h"
#include "farandole/timeline/rank_choice.h"
#include "farandole/timeline/record_source.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr const char* extension = ".ftl";

// Opens the file and says in `report` what it holds; nullptr where it cannot be read.
std::unique_ptr<RecordSource> survey_file(const fs::path& path, RecorderReport& report) try {
  report.file = path;
  auto file = std::make_unique<RecorderFile>(path);
  report.rank = file->rank();
  report.closed = file->closed();
  report.dropped = file->dropped();
  report.problems = file->problems();
  RecordDamage damage;
  std::vector<Record> block(1024);
  for (std::size_t slot = 0; slot < file->threads().size() && damage.records == 0; ++slot) {
    const RecorderThread& thread = file->threads()[slot];
    for (std::uint64_t index = thread.overwritten; index < thread.recorded && damage.records == 0;)
      index += file->read_records(slot, index, block, &damage);
  }
  for (const RecorderThread& thread : file->threads()) {
    report.overwritten += thread.overwritten;
    report.records += thread.recorded - thread.overwritten;
  }
  auto source = open_source(std::move(file));
  report.damaged = source->info().damaged;
  report.records -= report.damaged;
  if (report.damaged > 0)
    report.problems.push_back(fmt::format("{}, offset {}: {} record{} damaged or missing, this is the first",
                                          path.string(), damage.first_offset, report.damaged,
                                          report.damaged == 1 ? "" : "s"));
  report.readable = true;
  return source;
} catch (const Error& error) {
  report.problems.push_back(error.what());
  return nullptr;
}

}  // namespace

std::vector<fs::path> recorder_files(const fs::path& run) {
  std::error_code failure;
  if (fs::is_regular_file(run, failure)) return {run};
  if (!fs::is_directory(run, failure))
    throw UserError("there is no run " + run.string() + ": give a run directory or a recorder's file");
  const fs::path folder = fs::is_directory(run / "recorder", failure) ? run / "recorder" : run;
  std::vector<fs::path> files;
  for (const auto& home : homes_in(folder, extension, failure)) files.push_back(readable_at(home));
  if (failure) throw UserError("read the folder " + folder.string() + ": " + failure.message());
  if (files.empty())
    throw UserError(folder.string() +
                    " holds no recorder's file (*.ftl): was the run started with --timeline off?");
  return files;
}

bool RunRecorders::sound() const {
  return std::all_of(files.begin(), files.end(), [](const RecorderReport& file) { return file.sound(); });
}

RunRecorders open_run(const std::vector<fs::path>& files, const RunMergeOptions& options) {
  RunRecorders result;
  std::vector<std::unique_ptr<RecordSource>> sources;
  bool any = false;
  allow_open_files(files.size());
  for (const fs::path& file : files) {
    RecorderReport report;
    auto source = survey_file(file, report);
    any |= source != nullptr;
    const auto same_rank = [&](const auto& other) { return other->info().rank == report.rank; };
    if (source != nullptr && std::any_of(sources.begin(), sources.end(), same_rank)) {
      report.problems.push_back(
          fmt::format("{}: left out, another file is of rank {} too", file.string(), report.rank));
      source = nullptr;
    }
    result.files.push_back(std::move(report));
    if (source != nullptr && options.ranks.contains(source->info().rank))
      sources.push_back(std::move(source));
  }
  if (!any)
    throw CorruptInput(files.size() == 1
                           ? result.files[0].problems[0]
                           : fmt::format("none of the {} recorders' files can be read; the first: {}",
                                         files.size(), result.files[0].problems[0]));
  if (sources.empty()) throw UserError("none of the run's files is of these ranks");
  std::vector<RankTimeline> ranks = with_clocks(std::move(sources));
  const RankChoice choice = choose_ranks(ranks, options.merge_limit);
  result.left_out = left_out_text(ranks, choice);
  const bool all_steps = options.steps.first == 0 && options.steps.last == INT64_MAX;
  for (const std::size_t i : choice.chosen) {
    result.ranks.push_back(std::move(ranks[i]));
    auto& records = result.ranks.back().records;
    if (!all_steps) records = steps_of(std::move(records), options.steps);
  }
  return result;
}

}  // namespace farandole

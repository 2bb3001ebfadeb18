#include "farandole/timeline/run_timeline.h"

#include <utility>

#include "farandole/base/host.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/merge/run_recorders.h"
#include "farandole/timeline/merge/trace_merge.h"

namespace farandole {

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

#include "farandole/timeline/recorder/run_progress.h"

#include <algorithm>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

RunProgress recorded_progress(const std::filesystem::path& run) try {
  const RecorderFile file(readable_at(recorder_file(run, 0)));
  if (!file.problems().empty()) return {};
  RunProgress progress;
  // In step 7, which is the eighth, 7 steps are done. Outside of steps, as in an evaluation, the header has
  // none, and the last step with a record is done.
  if (file.last_step() >= 0) progress.step = file.last_step();
  const auto real = [&](std::int64_t monotonic_ns) {
    return file.start_realtime_ns() + (monotonic_ns - file.start_monotonic_ns());
  };
  progress.begin_ns = progress.end_ns = file.start_realtime_ns();
  constexpr std::uint64_t newest = 20'000;  // This is minutes of a training run.
  if (file.threads().empty()) return progress;
  for (const Record& record : file.newest_records(0, newest)) {
    progress.end_ns = std::max(progress.end_ns, real(record.end_ns));
    if (file.last_step() < 0 && record.step >= 0 && record.step < INT64_MAX)
      progress.step = std::max(progress.step.value_or(0), record.step + 1);
  }
  return progress;
} catch (const Error&) {
  return {};
}

}  // namespace

RunProgress read_run_progress(const std::filesystem::path& run) {
  const auto metrics = run / "metrics.jsonl";
  auto progress = recorded_progress(run);
  const auto logged = last_logged_step(metrics);
  if (logged.value_or(-1) >= 0) progress.step = std::max(progress.step.value_or(0), *logged);
  progress.end_ns = std::max({progress.end_ns, changed_ns(metrics), std::int64_t{0}});
  return progress;
}

}  // namespace farandole

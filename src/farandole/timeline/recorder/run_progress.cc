#include "farandole/timeline/recorder/run_progress.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/recorder/node_file.h"
#include "farandole/timeline/recorder/recorder_file.h"

namespace farandole {
namespace {

// From the first record of each step to that of the next. The oldest step may lack its first records.
std::optional<double> median_step_ms(const std::vector<Record>& records) {
  constexpr std::size_t most_steps = 100;
  std::map<std::int64_t, std::int64_t> starts;
  for (const Record& record : records)
    if (record.step >= 0) {
      const auto [found, is_new] = starts.try_emplace(record.step, record.start_ns);
      if (!is_new) found->second = std::min(found->second, record.start_ns);
    }
  std::vector<std::int64_t> lengths;
  for (auto next = starts.rbegin(); next != starts.rend() && lengths.size() < most_steps; ++next) {
    const auto before = std::next(next);
    if (before == starts.rend() || std::next(before) == starts.rend()) break;
    if (before->first + 1 == next->first) lengths.push_back(next->second - before->second);
  }
  if (lengths.empty()) return std::nullopt;
  const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  return *middle > 0 ? std::optional(static_cast<double>(*middle) * 1e-6) : std::nullopt;
}

// The lowest rank stands for a rank 0 without a recorder.
std::optional<std::filesystem::path> recorder_of(const std::filesystem::path& run) {
  if (auto file = readable_recorder(run, 0)) return file;
  std::error_code ignored;
  const auto others = recorders_in(run / "recorder", ignored);
  return others.empty() ? std::nullopt : std::optional(readable_at(others.front()));
}

RunProgress recorded_progress(const std::filesystem::path& run) try {
  const auto path = recorder_of(run);
  if (!path) return {};
  const RecorderFile file(*path);
  if (!file.problems().empty()) return {};
  RunProgress progress;
  // In step 7, which is the eighth, 7 steps are done. Outside of steps, as in an evaluation, the header has
  // none, and the last step with a record is done.
  if (file.last_step() >= 0) progress.step = file.last_step();
  const auto real = [&](std::int64_t monotonic_ns) {
    return file.start_realtime_ns() + (monotonic_ns - file.start_monotonic_ns());
  };
  progress.begin_ns = progress.end_ns = file.start_realtime_ns();
  progress.recorded = true;
  progress.closed = file.closed();
  progress.counts_own_steps = file.counts_own_steps();
  constexpr std::uint64_t newest = 20'000;  // This is minutes of a training run.
  if (file.threads().empty()) return progress;
  const auto records = file.newest_records(0, newest);
  progress.step_ms = median_step_ms(records);
  for (const Record& record : records) {
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

#include "farandole/launch/restart_policy.h"

#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/base/run/run_files.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

constexpr int most_same_failures = 3;

}  // namespace

std::string progress_of(const fs::path& run) {
  std::string progress;
  if (const auto step = last_logged_step(run / "metrics.jsonl")) progress = fmt::format("step {}", *step);
  if (const auto checkpoint = newest_checkpoint(run); !checkpoint.empty())
    progress += fmt::format("{}checkpoint {}", progress.empty() ? "" : ", ", checkpoint.filename().string());
  return progress;
}

RestartPolicy::Decision RestartPolicy::decide(const JobEnd& end) {
  const auto code = static_cast<ExitCode>(end.exit_code);
  if (max_restarts_ == 0 || end.told || code == ExitCode::done || code == ExitCode::user_error ||
      code == ExitCode::corrupt_input || code == ExitCode::preempted)
    return {};
  // Which of several ranks failed first is chance, so it does not belong to the failure.
  const auto progress = end.run.empty() ? std::string() : progress_of(end.run);
  const auto failure =
      progress.empty() ? progress : fmt::format("exit code {} at {}", end.exit_code, progress);
  same_failures_ = !failure.empty() && failure == last_failure_ ? same_failures_ + 1 : 1;
  last_failure_ = failure;
  if (same_failures_ >= most_same_failures)
    return {false, true,
            fmt::format("the job is not started again: it has failed {} times in a row with {}",
                        same_failures_, failure)};
  if (restarts_ == max_restarts_)
    return {false, true,
            fmt::format("the job is not started again: it has been started again {} time{} (--max-restarts)",
                        restarts_, restarts_ == 1 ? "" : "s")};
  ++restarts_;
  return {true, false, fmt::format("restart {} of {}", restarts_, max_restarts_)};
}

}  // namespace farandole

#include "farandole/launch/restart_policy.h"

#include <cstdlib>
#include <fmt/format.h>

#include "farandole/base/error.h"
#include "farandole/base/run/run_files.h"
#include "farandole/timeline/run_progress.h"

namespace farandole {
namespace {

constexpr int most_same_failures = 3;

}  // namespace

bool RestartPolicy::Failure::is_like(const Failure& other) const {
  return exit_code == other.exit_code && checkpoint == other.checkpoint && std::abs(step - other.step) <= 1;
}

std::string RestartPolicy::Failure::describe() const {
  auto text = fmt::format("exit code {} at step {}", exit_code, step);
  if (!checkpoint.empty()) text += fmt::format(", checkpoint {}", checkpoint.string());
  return text;
}

// Which of several ranks failed first is chance, so it does not belong to the failure.
std::optional<RestartPolicy::Failure> RestartPolicy::failure_of(const JobEnd& end) {
  Failure failure{end.exit_code, 0, {}};
  std::optional<std::int64_t> step;
  if (!end.run.empty()) {
    step = read_run_progress(end.run).step;
    failure.checkpoint = newest_checkpoint(end.run).filename();
  }
  if (!step && failure.checkpoint.empty() && end.lasted > short_job) return std::nullopt;
  failure.step = step.value_or(step_of_checkpoint(failure.checkpoint).value_or(0));
  return failure;
}

RestartPolicy::Decision RestartPolicy::decide(const JobEnd& end) {
  const auto code = static_cast<ExitCode>(end.exit_code);
  if (max_restarts_ == 0 || end.told || code == ExitCode::done || code == ExitCode::user_error ||
      code == ExitCode::corrupt_input || code == ExitCode::preempted)
    return {};
  const auto failure = failure_of(end);
  same_failures_ = failure && last_failure_ && failure->is_like(*last_failure_) ? same_failures_ + 1 : 1;
  last_failure_ = failure;
  if (same_failures_ >= most_same_failures)
    return {false, true,
            fmt::format("the job is not started again: it has failed {} times in a row with {}",
                        same_failures_, failure->describe())};
  if (restarts_ == max_restarts_)
    return {false, true,
            fmt::format("the job is not started again: it has been started again {} time{} (--max-restarts)",
                        restarts_, restarts_ == 1 ? "" : "s")};
  ++restarts_;
  return {true, false, fmt::format("restart {} of {}", restarts_, max_restarts_)};
}

}  // namespace farandole

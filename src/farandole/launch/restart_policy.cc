#include "farandole/launch/restart_policy.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <thread>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/process/child_process.h"
#include "farandole/launch/records/job_record.h"
#include "farandole/launch/slurm/job_state.h"
#include "farandole/timeline/recorder/run_progress.h"

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

namespace {

using std::chrono::seconds;

std::string text_of(const Environment& environment, const char* variable) {
  const char* value = environment(variable);
  return value == nullptr ? "" : value;
}

// How many times Slurm had started the job again when this process began.
int restarts_before(const Environment& environment) {
  return parse_number<int>(text_of(environment, "SLURM_RESTART_COUNT")).value_or(0);
}

// The scripts of slurm/ let Slurm warn 120 s before the limit. Below that, it warns at once, and each start
// trains for some seconds only.
std::string limit_text(const Environment& environment) {
  constexpr std::int64_t short_seconds = 180;
  const auto begin = parse_number<std::int64_t>(text_of(environment, "SLURM_JOB_START_TIME")),
             end = parse_number<std::int64_t>(text_of(environment, "SLURM_JOB_END_TIME"));
  if (!begin || !end || *end <= *begin || *end - *begin > short_seconds) return "";
  return fmt::format(
      "; its time limit of {} s leaves hardly any time before Slurm's warning (--signal), so ask for more (--time)",
      *end - *begin);
}

// 0: it does not start again.
void note(const std::filesystem::path& run, std::int64_t requeued_ns) try {
  if (run.empty()) return;
  const auto file = run / "launch/job.json";
  auto job = read_job(file);
  if (!job) return;
  job->requeued_ns = requeued_ns;
  write_job(file, *job);
} catch (const Error&) {  // The record is for readers only.
}

}  // namespace

RequeueDecision decide_requeue(const JobEnd& end, int most, const Environment& environment) {
  if (static_cast<ExitCode>(end.exit_code) != ExitCode::preempted && !end.unanswered) return {};
  const auto field = [&](const char* name) {
    const auto found = end.job_state.find(name);
    return found == end.job_state.end() ? std::string() : found->second;
  };
  const bool runs = field("JobState") == "RUNNING" || field("JobState").empty();
  const int restarts = restarts_before(environment);
  if (!runs && restarts_of(end.job_state) > restarts)
    return {.by_slurm = true,
            .message = fmt::format("Slurm has requeued job {}, which continues from its checkpoint",
                                   own_slurm_job(environment))};
  const bool preempted = !field("PreemptTime").empty() && field("PreemptTime") != "None";
  if (!runs && !preempted && field("Reason") != "TimeLimit")
    return {
        .message = fmt::format(
            "the job is not requeued, because Slurm has ended it (state {}); the same command continues from "
            "its checkpoint",
            field("JobState"))};
  if (restarts >= most)
    return {
        .message = fmt::format(
            "the job is not requeued: Slurm has started it again {} time{} (--requeue {}); the same command "
            "continues from its checkpoint",
            restarts, restarts == 1 ? "" : "s", most)};
  return {.requeue = true,
          .at_once = !runs,
          .message = fmt::format("job {} is requeued and continues from its checkpoint (restart {} of {}){}",
                                 own_slurm_job(environment), restarts + 1, most, limit_text(environment))};
}

void note_requeue(const JobEnd& end) {
  note(end.run, real_time_ns());
}

void requeue(const JobEnd& end, const Environment& environment) {
  const auto job = own_slurm_job(environment);
  note_requeue(end);
  const auto begin_ns = now_ns();
  constexpr std::int64_t patience_ns = 60'000'000'000;
  for (;;) {
    const auto answer = run_command({"scontrol", "requeue", job}, seconds(30));
    if (answer && answer->exit_code == 0) return;
    // A requeue ends all processes of the job, also scontrol, sometimes before it has its answer. A second
    // request is refused.
    if (restarts_of(ask_for_job_state(job, seconds(30))) > restarts_before(environment)) return;
    const auto text = answer ? answer->text.substr(0, answer->text.find('\n')) : "no answer";
    const bool busy = !answer || text.find("contact") != std::string::npos;
    if (busy && now_ns() - begin_ns < patience_ns) {
      std::this_thread::sleep_for(seconds(2));
      continue;
    }
    note(end.run, 0);
    fmt::print(stderr, "farandole run: job {} could not be requeued ({}); submit the same command again\n",
               job, text);
    return;
  }
}

}  // namespace farandole

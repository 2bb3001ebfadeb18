#include "farandole/launch/slurm/requeue.h"

#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <thread>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/process/command_output.h"
#include "farandole/launch/records/job_record.h"
#include "farandole/launch/slurm/job_state.h"

namespace farandole {
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

#include "farandole/launch/run_status.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <set>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/run/run_json.h"
#include "farandole/base/run/run_lease.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/records/job_record.h"
#include "farandole/launch/slurm/job_state.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;
using State = RunStatus::State;

double seconds_now() {
  return static_cast<double>(real_time_ns()) * 1e-9;
}

std::optional<double> unix_seconds(const std::optional<std::string>& utc) {
  std::tm parts{};
  if (!utc || ::strptime(utc->c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) == nullptr) return std::nullopt;
  return static_cast<double>(::timegm(&parts));
}

// Damaged records are left out, because the other files still tell a lot.
std::optional<JobRecord> job_of(const fs::path& run) try {
  return read_job(run / "launch/job.json");
} catch (const Error&) {
  return std::nullopt;
}

template <class T>
void take(const Json& line, const char* key, std::optional<T>& target) {
  if (const auto found = line.find(key); found != line.end() && found->is_number()) target = found->get<T>();
}

void read_progress(const fs::path& run, RunStatus& status) {
  double milliseconds = 0;
  int lines = 0;
  for (const auto& line : last_metrics(run / "metrics.jsonl")) {
    take(line, "step", status.step);
    take(line, "epoch", status.epoch);
    take(line, "loss", status.loss);
    take(line, "eval_loss", status.eval_loss);
    take(line, "eval_accuracy", status.eval_accuracy);
    take(line, "samples_per_s", status.samples_per_s);
    if (!line.contains("step_ms")) continue;
    take(line, "step_ms", status.step_ms);
    milliseconds += status.step_ms.value_or(0);
    ++lines;
  }
  if (lines > 0 && status.total_steps && status.step)
    status.seconds_left =
        static_cast<double>(*status.total_steps - *status.step) * milliseconds / lines * 1e-3;
}

void read_checkpoint(const fs::path& run, RunStatus& status) {
  const auto newest = newest_checkpoint(run);
  if (newest.empty()) return;
  status.checkpoint_step = step_of_checkpoint(newest);
  if (const auto written_ns = changed_ns(newest); written_ns >= 0)
    status.checkpoint_age_s = std::max(0.0, seconds_now() - static_cast<double>(written_ns) * 1e-9);
}

void judge(const RunFacts& facts, const std::optional<JobRecord>& job, bool alive, RunStatus& status) {
  const auto started = unix_seconds(facts.started).value_or(0);
  const auto ended = unix_seconds(facts.ended);
  const auto launched = job ? static_cast<double>(job->start_ns) * 1e-9 : 0;
  const bool launcher_ended = job && job->end_ns != 0;
  // The ranks of the newest start have written run.json. Its times are whole seconds.
  const bool ranks_began = facts.found && started + 1 >= launched;
  // The lease of a rank 0 that ended without giving it back looks alive for some seconds from another host.
  // Its own record of the end counts more. Without a launcher's record, the lease may be that of a new start.
  const bool recorded_its_end = job && ranks_began && ended;
  if (alive && !recorded_its_end) {
    status.state = ranks_began && !ended ? State::running : State::starting;
    return;
  }
  if (launcher_ended || (ranks_began && ended)) {
    const auto code = launcher_ended ? job->exit_code : facts.exit_code.value_or(1);
    status.exit_code = code;
    status.state = code == 0 ? State::finished
                   : code == static_cast<int>(ExitCode::preempted)
                       ? (job && job->requeued_ns != 0 ? State::waiting : State::stopped)
                       : State::failed;
    if (status.state == State::stopped) status.detail = "the same command continues from its checkpoint";
    if (status.state == State::failed) status.detail = job && !job->message.empty() ? job->message : "";
  } else if (job && !ranks_began && seconds_now() - launched < 60) {
    status.state = State::starting;
  } else {
    status.state = State::lost;
    status.detail = "its end was not recorded, and it shows no sign of life";
  }
}

constexpr std::chrono::seconds slurm_answers_within(5);

// Returns why a job that waited to start again will not; "" if it may.
std::string why_not_again(const RunStatus& status, const JobRecord& job) {
  for (const auto* end : {"CANCELLED", "FAILED", "TIMEOUT", "COMPLETED", "NODE_FAIL", "DEADLINE", "BOOT_FAIL",
                          "OUT_OF_MEMORY", "PREEMPTED"})
    if (status.job_state.starts_with(end)) return "Slurm has ended its job";
  // Slurm forgets jobs some minutes after their end.
  if (status.job_state.empty() && is_forgotten_job(job.slurm, slurm_answers_within))
    return "Slurm does not know its job any more";
  return "";
}

// Slurm knows what the run directory cannot: a job that Slurm itself has requeued, that has just started
// again, or that will not start again.
void correct(RunStatus& status, const JobRecord& job, const JobState& now) {
  // The lease of a job that was killed on another host looks alive for some seconds.
  if (status.job_state == "PENDING" && status.state != State::finished) {
    status.state = State::waiting;
    status.detail.clear();
  }
  const auto count = job.slurm.find("RESTART_COUNT");
  const auto restarts = count != job.slurm.end() ? parse_number<int>(count->second).value_or(0) : 0;
  const bool again = restarts_of(now) > restarts;
  if (status.job_state == "RUNNING" &&
      (status.state == State::waiting || (status.state == State::lost && again))) {
    status.state = State::starting;
    status.detail.clear();
  }
  if (status.state != State::waiting) return;
  if (const auto why = why_not_again(status, job); !why.empty()) {
    status.state = State::stopped;
    status.detail = why + "; the same command continues from its checkpoint";
  }
}

}  // namespace

bool is_under_way(State state) {
  return state == State::starting || state == State::running || state == State::waiting;
}

RunStatus read_run_status(const fs::path& run) {
  RunStatus status;
  status.folder = run.string();
  const auto facts = read_run_facts(run_json_of(run));
  const auto job = job_of(run);
  if (!facts.found && !job)
    throw UserError(run.string() + (fs::is_directory(run)
                                        ? " has neither run.json nor launch/job.json; name the "
                                          "run directory of a training"
                                        : " is not a folder; name a run directory"));
  status.total_steps = facts.total_steps;
  status.restarts = facts.restarts;
  status.lost_steps = facts.lost_steps;
  status.ranks = job ? job->ranks : facts.ranks;
  std::set<std::string> seen;
  for (const auto& host : facts.hosts)
    if (seen.insert(host).second) status.hosts.push_back(host);
  read_progress(run, status);
  read_checkpoint(run, status);
  judge(facts, job, lease_is_alive(run), status);
  if (job && job->slurm.contains("JOB_ID")) {
    status.job = job->slurm.at("JOB_ID");
    const auto now = ask_for_recorded_job(job->slurm, slurm_answers_within);
    if (const auto found = now.find("JobState"); found != now.end()) status.job_state = found->second;
    correct(status, *job, now);
    const auto end = job->slurm.find("JOB_END_TIME");
    if (end != job->slurm.end() && status.state == State::running)
      if (const auto seconds = parse_number<double>(end->second))
        status.wall_seconds_left = *seconds - seconds_now();
  }
  if (status.state != State::running) status.seconds_left.reset();
  return status;
}

}  // namespace farandole

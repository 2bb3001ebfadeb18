#include "farandole/launch/run_status.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <sys/stat.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/host.h"
#include "farandole/base/process/process_state.h"
#include "farandole/base/run/run_files.h"
#include "farandole/base/run/run_json.h"
#include "farandole/base/run/run_lease.h"
#include "farandole/base/text/json.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"
#include "farandole/launch/records/job_record.h"
#include "farandole/launch/slurm/job_state.h"
#include "farandole/launch/slurm/submission.h"
#include "farandole/timeline/merge/run_recorders.h"
#include "farandole/timeline/recorder/node_file.h"
#include "farandole/timeline/recorder/run_progress.h"
#include "farandole/timeline/recorder/run_starts.h"

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
    if (const auto loss = line.find("loss"); loss != line.end() && loss->is_null())
      status.loss = std::nan("");
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

// What the flight recorder tells of a program that writes no metrics.
void add_recorded(const RunFacts& facts, const RunProgress& recorded, RunStatus& status) {
  if (!status.step) {
    status.step = recorded.step;
    status.counts_own_steps = recorded.counts_own_steps;
  }
  if (!status.step_ms) status.step_ms = recorded.step_ms;
  if (!status.samples_per_s && status.step_ms && facts.global_batch)
    status.samples_per_s = *facts.global_batch * 1e3 / *status.step_ms;
}

// When rank 0 began to record, in seconds since 1970; 0 if it did not. A recorder on the disk of another node
// is only a link here.
double recording_since(const fs::path& run, const RunProgress& recorded) {
  struct stat link {};
  if (recorded.recorded || ::lstat(node_link(recorder_file(run, 0)).c_str(), &link) != 0)
    return static_cast<double>(recorded.begin_ns) * 1e-9;
  return static_cast<double>(link.st_mtim.tv_sec) + static_cast<double>(link.st_mtim.tv_nsec) * 1e-9;
}

void explain_unknown(const fs::path& run, const RunProgress& recorded, ProgramKind kind, RunStatus& status) {
  if (!status.step && recorded.recorded)
    status.no_step =
        std::string("unknown: no step has begun, or it has no number; ") + remedy(Topic::number_steps, kind);
  else if (!status.step)
    status.no_step = recording_since(run, recorded) > 0
                         ? "unknown here: rank 0 records on its node until the run ends; "
                           "FARANDOLE_RECORDER_DIR=run records in the run directory"
                         : "unknown: nothing is recorded";
  if (status.step_ms && !status.samples_per_s)
    status.no_samples = std::string("for samples/s, ") + remedy(Topic::global_batch, kind);
}

void read_checkpoint(const fs::path& run, ProgramKind kind, RunStatus& status) {
  auto newest = newest_checkpoint(run);
  if (newest.empty() && is_of_users(kind)) {
    newest = newest_checkpoint_of_program(run);
    if (!newest.empty()) status.other_checkpoint = newest.lexically_relative(run).string();
  }
  if (newest.empty()) return;
  status.checkpoint_step = step_of_checkpoint(newest);
  if (const auto written_ns = changed_ns(newest); written_ns >= 0)
    status.checkpoint_age_s = std::max(0.0, seconds_now() - static_cast<double>(written_ns) * 1e-9);
}

// Whether the launcher may still start ranks. Processes of another host cannot be seen.
bool may_be_starting(const JobRecord& job) {
  constexpr double longest_s = 60;
  if (seconds_now() - static_cast<double>(job.start_ns) * 1e-9 >= longest_s) return false;
  const auto process = read_process_state(job.pid);
  return job.host != host_name() || (process && process->state != 'Z');
}

// `recording`: as recording_since(). Returns false if nobody tells whether the run has ended.
bool judge(const RunFacts& facts, double recording, const std::optional<JobRecord>& job, bool alive,
           RunStatus& status) {
  // A run.json that is older than the recorder belongs to an earlier start, whose program was another one.
  const auto started = std::max(unix_seconds(facts.started).value_or(0), recording);
  auto ended = unix_seconds(facts.ended);
  if (ended && *ended + 1 < recording) ended.reset();
  const auto launched = job ? static_cast<double>(job->start_ns) * 1e-9 : 0;
  const bool launcher_ended = job && job->end_ns != 0;
  // The ranks of the newest start have written run.json, or record. The times of run.json are whole seconds.
  const bool ranks_began = (facts.found || recording > 0) && started + 1 >= launched;
  // The lease of a rank 0 that ended without giving it back looks alive for some seconds from another host.
  // Its own record of the end counts more. Without a launcher's record, the lease may be that of a new start.
  const bool recorded_its_end = job && ranks_began && ended;
  if (alive && !recorded_its_end) {
    status.state = ranks_began && !ended ? State::running : State::starting;
    return true;
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
  } else if (job && !ranks_began && may_be_starting(*job)) {
    status.state = State::starting;
  } else {
    status.state = State::lost;
    status.detail = "its end was not recorded, and it shows no sign of life";
    return !ranks_began;
  }
  return true;
}

// A program that another launcher has started: its recorders tell whether its ranks have ended or were
// killed. `worked_ns`: when it last worked.
void judge_by_recorders(const fs::path& run, std::int64_t worked_ns, RunStatus& status) {
  constexpr std::int64_t silent_ns = 120 * ns_per_second;  // A rank's file is written back every 30 s.
  const auto signs = read_signs(run);
  if (signs.empty()) return;
  std::vector<int> gone, elsewhere;
  bool alive = false;
  std::set<std::string> hosts;
  for (const auto& sign : signs) {
    status.ranks = std::max<std::int64_t>(status.ranks.value_or(0), sign.start.world_size);
    if (hosts.insert(sign.host).second && status.hosts.size() < hosts.size())
      status.hosts.push_back(sign.host);
    if (sign.closed) continue;
    worked_ns = std::max(worked_ns, sign.start.last_ns);
    const bool here = sign.host == host_name();
    if (recorder_has_ended(sign.file) ||
        (here && state_of_process(sign.process, sign.start.realtime_ns) == '\0'))
      gone.push_back(sign.rank);
    else if (here)
      alive = true;
    else
      elsewhere.push_back(sign.rank);
  }
  const bool works = !elsewhere.empty() && real_time_ns() - worked_ns < silent_ns;
  if (!gone.empty()) status.detail = describe_ranks(gone) + " ended without closing the recorder";
  if (alive || works) {
    status.state = State::running;
    if (gone.empty()) status.detail.clear();
  } else if (!gone.empty()) {
    status.state = State::killed;
  } else if (elsewhere.empty()) {
    status.state = State::ended;
    status.detail = "its ranks have closed their recorders; farandole run would record the exit code";
  }
}

constexpr std::chrono::seconds slurm_answers_within(5);

// Returns why a job that waited to start again will not; "" if it may.
std::string why_not_again(RunStatus& status, const JobRecord& job) {
  for (const auto* end : {"CANCELLED", "FAILED", "TIMEOUT", "COMPLETED", "NODE_FAIL", "DEADLINE", "BOOT_FAIL",
                          "OUT_OF_MEMORY", "PREEMPTED"})
    if (status.job_state.starts_with(end)) return "Slurm has ended its job";
  // Slurm forgets jobs some minutes after their end.
  if (!status.job_state.empty()) return "";
  if (!status.forgotten) status.forgotten = is_forgotten_job(job.slurm, slurm_answers_within);
  if (*status.forgotten) return "Slurm does not know its job any more";
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
  // The program says first that it has stopped. Then the launcher records the end of the ranks, and asks
  // Slurm to requeue the job.
  constexpr std::int64_t requeue_takes_ns = 60'000'000'000;
  if ((status.job_state == "RUNNING" || status.job_state == "COMPLETING") && status.state == State::stopped &&
      (job.end_ns == 0 || real_time_ns() - job.end_ns < requeue_takes_ns)) {
    status.state = State::waiting;
    status.detail = "it has saved, and its batch script may still requeue it";
  }
  if (status.state != State::waiting) return;
  if (const auto why = why_not_again(status, job); !why.empty()) {
    status.state = State::stopped;
    status.detail = why + "; the same command continues from its checkpoint";
  }
}

// Slurm has the job, but its launcher has not come so far.
void judge_submitted(const std::string& submitted, bool first, RunStatus& status) {
  status.job = submitted;
  if (!status.slurm_said)
    status.slurm_said = ask_for_submitted_job(status.folder, submitted, slurm_answers_within);
  const auto& now = *status.slurm_said;
  const auto found = now.find("JobState");
  if (found != now.end()) status.job_state = found->second;
  const auto is = [&](const char* state) { return status.job_state.starts_with(state); };
  status.detail.clear();
  if (is("PENDING") || is("REQUEUED")) {
    status.state = State::waiting;
    if (const auto reason = now.find("Reason"); reason != now.end() && reason->second != "None")
      status.detail = "Slurm says " + reason->second;
  } else if (is("RUNNING") || is("CONFIGURING") || (status.job_state.empty() && first)) {
    status.state = State::starting;
    if (status.job_state.empty()) status.detail = "it was submitted; Slurm cannot be asked about it here";
  } else if (!status.job_state.empty()) {
    status.state = State::failed;
    status.detail = "Slurm has ended its job before it started; job.out may say why";
  }
}

}  // namespace

bool is_under_way(State state) {
  return state == State::starting || state == State::running || state == State::waiting;
}

RunStatus read_run_status(const fs::path& run, const RunStatus* before) {
  RunStatus status;
  status.folder = run.string();
  const auto facts = read_run_facts(run_json_of(run));
  const auto job = job_of(run);
  const auto recorded = read_run_progress(run);
  const auto submitted = submitted_job(run);
  std::error_code ignored;
  const bool first = !facts.found && !job && recorders_in(run / "recorder", ignored).empty();
  if (first && submitted.empty())
    throw UserError(run.string() + (fs::is_directory(run)
                                        ? " has neither run.json nor launch/job.json nor recorder/; name a "
                                          "run directory"
                                        : " is not a folder; name a run directory"));
  if (facts.program || job)
    status.program = facts.program ? *facts.program : fmt::format("{}", fmt::join(job->program, " "));
  status.total_steps = facts.total_steps;
  status.restarts = facts.restarts;
  status.lost_steps = facts.lost_steps;
  status.ranks = job ? job->ranks : facts.ranks;
  std::set<std::string> seen;
  for (const auto& host : facts.hosts)
    if (seen.insert(host).second) status.hosts.push_back(host);
  read_progress(run, status);
  add_recorded(facts, recorded, status);
  if (status.step_ms) status.rate = model_rate(facts, *status.step_ms * 1e-3);
  const auto kind = kind_of_program(facts, job ? job->program : std::vector<std::string>());
  read_checkpoint(run, kind, status);
  if (!judge(facts, recording_since(run, recorded), job, lease_is_alive(run), status))
    judge_by_recorders(run, std::max(recorded.end_ns, changed_ns(run / "metrics.jsonl")), status);
  const std::string launched = job && job->slurm.contains("JOB_ID") ? job->slurm.at("JOB_ID") : "";
  const bool is_new = !submitted.empty() && submitted != launched && (first || !is_under_way(status.state));
  status.asked_about =
      fmt::format("{} {} {}", is_new ? submitted : launched, job ? job->start_ns : 0, job ? job->end_ns : 0);
  if (before != nullptr && before->asked_about == status.asked_about) {
    status.slurm_said = before->slurm_said;
    status.forgotten = before->forgotten;
  }
  if (is_new) {
    auto as_recorded = status;
    judge_submitted(submitted, first, status);
    as_recorded.slurm_said = status.slurm_said;
    if (!first && status.job_state.empty()) status = as_recorded;  // that job is history
  } else if (!launched.empty()) {
    status.job = launched;
    if (!status.slurm_said) status.slurm_said = ask_for_recorded_job(job->slurm, slurm_answers_within);
    const auto& now = *status.slurm_said;
    if (const auto found = now.find("JobState"); found != now.end()) status.job_state = found->second;
    correct(status, *job, now);
    const auto end = job->slurm.find("JOB_END_TIME");
    if (end != job->slurm.end() && status.state == State::running)
      if (const auto seconds = parse_number<double>(end->second))
        status.wall_seconds_left = *seconds - seconds_now();
  }
  if (status.state != State::running) status.seconds_left.reset();
  if (status.state == State::running) explain_unknown(run, recorded, kind, status);
  // Until the ranks record, the launcher's record and theirs are of different starts.
  if (status.state != State::starting && !first)
    status.goodput = goodput_of(read_run_starts(run, status.state == State::running ? real_time_ns() : 0));
  return status;
}

namespace {

const char* name_of(State state) {
  switch (state) {
    case State::starting:
      return "starting";
    case State::running:
      return "running";
    case State::waiting:
      return "waiting";
    case State::stopped:
      return "stopped";
    case State::finished:
      return "finished";
    case State::failed:
      return "failed";
    case State::ended:
      return "ended";
    case State::killed:
      return "killed";
    case State::lost:
      break;
  }
  return "lost";
}

std::string steps(const RunStatus& run) {
  if (!run.step) return "";
  if (run.total_steps.value_or(0) < 1)
    return fmt::format("step {}{}", *run.step, run.counts_own_steps ? " of this start" : "");
  return fmt::format("step {} of {} ({:.0f} %)", *run.step, *run.total_steps,
                     100.0 * static_cast<double>(*run.step) / static_cast<double>(*run.total_steps));
}

std::string headline(const RunStatus& run) {
  std::string line = fmt::format("{}: {}", printable(run.folder), name_of(run.state));
  if (run.state == State::waiting) line += run.ranks ? " to start again" : " to start";
  if (run.state == State::failed && run.exit_code) line += fmt::format(" with exit code {}", *run.exit_code);
  if (const auto done = steps(run); !done.empty()) line += ", " + done;
  if (run.epoch && is_under_way(run.state)) line += fmt::format(", epoch {}", *run.epoch + 1);
  return line + "\n";
}

std::string paragraph(const RunStatus& run) {
  std::string text = headline(run);
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += fmt::format("  {:<11} {}\n", name, printable(value));
  };
  add("reason", run.detail);
  add("program", run.program);
  add("step", run.no_step);
  if (run.samples_per_s && run.step_ms)
    add("rate", fmt::format("{:.0f} samples/s, {:.3g} ms per step", *run.samples_per_s, *run.step_ms));
  else if (run.step_ms)
    add("rate", fmt::format("{:.3g} steps/s, {:.3g} ms per step{}", 1e3 / *run.step_ms, *run.step_ms,
                            run.no_samples.empty() ? "" : "; " + run.no_samples));
  if (run.rate) add("model", run.rate->text());
  if (run.loss) {
    auto loss = std::isnan(*run.loss) ? "not finite (NaN or infinite)" : fmt::format("{:.4f}", *run.loss);
    if (run.eval_loss) loss += fmt::format(", held-out {:.4f}", *run.eval_loss);
    if (run.eval_accuracy) loss += fmt::format(", accuracy {:.2f} %", 100 * *run.eval_accuracy);
    add("loss", loss);
  }
  if (run.seconds_left) add("time left", describe_clock(*run.seconds_left));
  if (run.wall_seconds_left)
    add("wall time", *run.wall_seconds_left > 0 ? describe_clock(*run.wall_seconds_left) + " left" : "over");
  const auto age = run.checkpoint_age_s ? ", " + describe_clock(*run.checkpoint_age_s) + " ago" : "";
  if (run.checkpoint_step)
    add("checkpoint", fmt::format("step {}{}", *run.checkpoint_step, age));
  else
    add("checkpoint", run.other_checkpoint.empty()
                          ? "none"
                          : fmt::format("none of Farandole; {} looks like one{}", run.other_checkpoint, age));
  if (run.restarts.value_or(0) > 0)
    add("restarts", fmt::format("{}; {} steps were repeated", *run.restarts, run.lost_steps.value_or(0)));
  if (run.knows_goodput()) add("goodput", goodput_text(run.goodput));
  if (run.ranks)
    add("ranks",
        fmt::format("{}{}", *run.ranks, run.hosts.empty() ? "" : " on " + describe_list(run.hosts, 4)));
  if (!run.job.empty()) add("Slurm job", run.job + (run.job_state.empty() ? "" : " (" + run.job_state + ")"));
  return text;
}

std::string table(const std::vector<RunStatus>& runs) {
  std::size_t widest = 3;
  for (const auto& run : runs) widest = std::max(widest, printable(run.folder).size());
  auto text = fmt::format("{:<{}}  {:<8}  {:>17}  {:>10}  {:>10}  {:>10}  {:>10}  {:>8}\n", "run", widest,
                          "state", "step", "samples/s", "loss", "held-out", "checkpoint", "restarts");
  const auto number = [](const auto& value, const char* format) {
    return value ? fmt::format(fmt::runtime(format), *value) : std::string("-");
  };
  for (const auto& run : runs)
    text += fmt::format(
        "{:<{}}  {:<8}  {:>17}  {:>10}  {:>10}  {:>10}  {:>10}  {:>8}\n", printable(run.folder), widest,
        name_of(run.state),
        number(run.step, "{}") + (run.total_steps ? fmt::format("/{}", *run.total_steps) : ""),
        number(run.samples_per_s, "{:.0f}"), number(run.loss, "{:.4f}"), number(run.eval_loss, "{:.4f}"),
        number(run.checkpoint_step, "{}"), number(run.restarts, "{}"));
  return text;
}

Json to_json(const RunStatus& run) {
  Json json = {{"run", run.folder}, {"state", name_of(run.state)}};
  const auto set = [&](const char* name, const auto& value) {
    if (value) json[name] = *value;
  };
  if (!run.detail.empty()) json["reason"] = run.detail;
  if (!run.program.empty()) json["program"] = run.program;
  set("exit_code", run.exit_code);
  set("step", run.step);
  set("total_steps", run.total_steps);
  set("epoch", run.epoch);
  set("loss", run.loss);
  set("eval_loss", run.eval_loss);
  set("eval_accuracy", run.eval_accuracy);
  set("samples_per_s", run.samples_per_s);
  set("step_ms", run.step_ms);
  if (run.rate) json["tflops"] = run.rate->tflops;
  if (run.rate) set("mfu", run.rate->mfu);
  set("seconds_left", run.seconds_left);
  set("wall_seconds_left", run.wall_seconds_left);
  set("checkpoint_step", run.checkpoint_step);
  set("checkpoint_age_s", run.checkpoint_age_s);
  if (!run.other_checkpoint.empty()) json["other_checkpoint"] = run.other_checkpoint;
  if (run.knows_goodput()) json["goodput"] = goodput_json(run.goodput);
  set("restarts", run.restarts);
  set("lost_steps", run.lost_steps);
  set("ranks", run.ranks);
  json["hosts"] = run.hosts;
  if (!run.job.empty()) json["slurm_job"] = run.job;
  if (!run.job_state.empty()) json["slurm_state"] = run.job_state;
  return json;
}

}  // namespace

std::string status_text(const std::vector<RunStatus>& runs) {
  return runs.size() == 1 ? paragraph(runs.front()) : table(runs);
}

std::string status_json(const std::vector<RunStatus>& runs) {
  auto list = Json::array();
  for (const auto& run : runs) list.push_back(to_json(run));
  return json_text({{"farandole_status", 1}, {"runs", list}}, 2) + "\n";
}

}  // namespace farandole

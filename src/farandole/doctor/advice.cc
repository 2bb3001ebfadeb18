// Advice after a diagnosis.
#include <fmt/format.h>

#include "farandole/base/run/earlier_starts.h"
#include "farandole/doctor/diagnosis_parts.h"
#include "farandole/launch/supervisor/supervisor.h"

namespace farandole {
namespace {

std::string job_id(const RunEvidence& run) {
  if (!run.job) return "";
  const auto id = run.job->slurm.find("JOB_ID");
  return id == run.job->slurm.end() ? "" : id->second;
}

// In this case, the state that Slurm reports belongs to the job's next start.
bool is_requeued(const RunEvidence& run) {
  const auto state = run.slurm_state.find("JobState");
  return state != run.slurm_state.end() && (state->second == "PENDING" || state->second == "REQUEUED");
}

std::string host_of(const Diagnosis& diagnosis) {
  return diagnosis.host.empty() ? "its host" : diagnosis.host;
}

// Names the log of the rank, or says how to write a log next time.
std::string look_at_log(const RunEvidence& run, int rank) {
  const auto log = log_of(run.folder / "logs", rank);
  std::error_code ignored;
  return std::filesystem::exists(log, ignored)
             ? "read its whole output: " + log.string()
             : fmt::format("keep its whole output next time: farandole run --log-dir {}",
                           (run.folder / "logs").string());
}

void about_memory(bool in_slurm, std::vector<std::string>& next) {
  next.emplace_back(
      "use less memory per rank: a smaller --batch, with --accumulate to keep the global batch");
  next.emplace_back(in_slurm ? "or request more memory (sbatch --mem, --mem-per-cpu), or fewer ranks per node"
                             : "or use fewer ranks on the host, or a higher memory limit");
}

void about_kill(const std::string& host, const std::string& job, std::vector<std::string>& next) {
  next.push_back(
      fmt::format("check the kernel log on {}: dmesg -T | grep -i -B2 -A8 'killed process'", host));
  if (!job.empty())
    next.push_back(
        fmt::format("check Slurm's record: sacct -j {} -o JobID,State,ExitCode,MaxRSS,NodeList", job));
}

void about_failure(const RunEvidence& run, const Diagnosis& diagnosis, std::vector<std::string>& next) {
  if (!diagnosis.rank) return;
  const auto& rank = run.ranks.at(static_cast<std::size_t>(*diagnosis.rank));
  if (rank.log.memory_short) about_memory(!job_id(run).empty(), next);
  next.push_back(look_at_log(run, *diagnosis.rank));
}

// Checkpoints are those of all starts.
std::string go_on(const RunEvidence& run) {
  if (is_earlier_start(run.folder)) {
    const auto all = (run.folder / "").lexically_normal().parent_path().parent_path().parent_path();
    return fmt::format("this is an earlier start of a run; for the last one: farandole doctor {}",
                       all.empty() ? "." : all.string());
  }
  return run.checkpoint_step
             ? fmt::format("the same command continues from step {} (--resume auto)", *run.checkpoint_step)
             : "there is no checkpoint to continue from; --checkpoint-every auto saves one from time to time";
}

// Returns whether the ranks had waited long for one rank when the job ended. More time would not have
// helped such a job.
bool hung_before_end(const RunEvidence& run, const Diagnosis& diagnosis) {
  return diagnosis.call && !diagnosis.call->missing.empty() && diagnosis.time_ns != 0 &&
         diagnosis.time_ns - diagnosis.call->since_ns >= stall_limit_ns(run.ranks);
}

void about_stall(const RunEvidence& run, int waited_for, std::vector<std::string>& next) {
  const auto& rank = run.ranks.at(static_cast<std::size_t>(waited_for));
  if (rank.alive) {
    next.push_back(fmt::format("print the stacks of rank {}: gdb -p {} -batch -ex 'thread apply all bt'",
                               rank.rank, rank.pid));
    if (rank.state == 'T') next.push_back(fmt::format("continue it: kill -CONT {}", rank.pid));
  }
  if (rank.recorder && rank.recorder->doing && rank.recorder->doing->category == Category::data)
    next.push_back(fmt::format("rank {} was loading data: check the file system of --data", rank.rank));
  next.emplace_back(
      "--stall-seconds 30 makes every rank report what it does, with its stack; --stall-abort 300 ends "
      "the job after 300 s");
}

}  // namespace

std::vector<std::string> advise(const RunEvidence& run, const Diagnosis& diagnosis) {
  std::vector<std::string> next;
  const auto id = job_id(run);
  for (const auto& helper : run.stopped_helpers)
    next.push_back(fmt::format("continue {}: kill -CONT {}", helper.who, helper.pid));
  switch (diagnosis.cause) {
    case Cause::done:
      next.push_back("farandole analyze " + run.folder.string());
      return next;
    case Cause::running:
      return next;
    case Cause::out_of_memory:
      about_memory(!id.empty(), next);
      break;
    case Cause::killed:
      about_kill(diagnosis.rank || !run.job ? host_of(diagnosis) : run.job->host, id, next);
      break;
    case Cause::crashed:
    case Cause::uncaught_exception:
      about_failure(run, diagnosis, next);
      next.emplace_back("to get a stack: ulimit -c unlimited, run again, gdb PROGRAM CORE");
      break;
    case Cause::failed:
      about_failure(run, diagnosis, next);
      break;
    case Cause::refused:
      next.emplace_back(
          "correct what the message names and start the run again; requeueing alone does not help");
      return next;
    case Cause::corrupt_input:
      next.emplace_back("replace the file that the message names; requeueing alone does not help");
      if (run.checkpoint_step) next.push_back("farandole checkpoint verify " + run.folder.string());
      return next;
    case Cause::host_lost:
      if (!id.empty())
        next.push_back(fmt::format("submit again without the host: sbatch --exclude={}", host_of(diagnosis)));
      break;
    case Cause::stalled:
      if (diagnosis.rank) about_stall(run, *diagnosis.rank, next);
      break;
    case Cause::time_limit:
      if (hung_before_end(run, diagnosis)) {
        about_stall(run, diagnosis.call->missing.front(), next);
        break;
      }
      next.emplace_back(
          "use a longer sbatch --time, or sbatch --signal=USR1@120: the ranks then save and exit with code "
          "75");
      break;
    case Cause::unknown:
      next.push_back(fmt::format("keep the launcher's records next time: farandole run --log-dir {}",
                                 (run.folder / "logs").string()));
      break;
    case Cause::preempted:
    case Cause::requeued:
    case Cause::interrupted:
    case Cause::cancelled:
      break;
  }
  if (is_requeued(run)) next.push_back(fmt::format("Slurm has requeued job {} and will start it again", id));
  next.push_back(go_on(run));
  return next;
}

}  // namespace farandole

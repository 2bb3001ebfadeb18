#include "farandole/doctor/findings.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <sstream>

#include "farandole/base/error.h"
#include "farandole/base/run/earlier_starts.h"
#include "farandole/base/run/remedies.h"
#include "farandole/base/text/phrases.h"
#include "farandole/doctor/descriptions.h"
#include "farandole/doctor/root_cause.h"
#include "farandole/launch/supervisor/supervisor.h"

namespace farandole {
namespace {

constexpr std::int64_t little_space = std::int64_t{1} << 30;

class Finder {
 public:
  Finder(const RunEvidence& run, const Diagnosis& diagnosis) : run_(run), diagnosis_(diagnosis) {}

  std::vector<std::string> find() {
    job();
    root_cause();
    watch();
    progress();
    space();
    memory();
    versions();
    return std::move(lines_);
  }

 private:
  void add(std::string line) { lines_.push_back(std::move(line)); }

  void job() {
    if (run_.job) {
      const auto& job = *run_.job;
      add(fmt::format("farandole run {} started {} ranks on {}{} at {}{}", job.version, job.ranks, job.host,
                      job.starter == own_starter ? "" : " with " + job.starter, time_of(job.start_ns),
                      job.end_ns == 0 ? "; it has not recorded its end"
                                      : fmt::format(" and ended at {} with exit code {}", time_of(job.end_ns),
                                                    job.exit_code)));
      if (!job.message.empty()) add("its message: " + job.message);
      // Where a rank has failed by itself, mpirun and srun only repeat that.
      if (job.end_ns != 0 && job.exit_code != 0 && !job.starter_said.empty() && !is_known(diagnosis_.rank))
        add(job.starter + " said: " + without_rulers(job.starter_said));
      for (const auto& signal : job.signals)
        add(fmt::format("farandole run received {} at {}", describe_signal(signal.number),
                        time_of(signal.time_ns)));
      if (const auto id = job.slurm.find("JOB_ID"); id != job.slurm.end()) slurm(id->second);
    }
    if (run_.facts.restarts.value_or(0) > 0)
      add(fmt::format("this is restart {} in this folder; the report covers only the last start",
                      *run_.facts.restarts));
    const auto starts = earlier_starts(run_.folder);
    constexpr std::size_t most_starts = 3;
    const auto shown = std::min(starts.size(), most_starts);
    if (shown < starts.size())
      add(fmt::format("{} has {} earlier starts; these are the last ones", (run_.folder / "starts").string(),
                      starts.size()));
    for (auto start = starts.end() - static_cast<std::ptrdiff_t>(shown); start != starts.end(); ++start)
      add(fmt::format("what an earlier start has recorded is kept: farandole doctor {}", start->string()));
  }

  bool is_known(const std::optional<int>& rank) const {
    return rank && run_.ranks.at(static_cast<std::size_t>(*rank)).end;
  }

  // Open MPI puts lines of dashes around its words.
  static std::string without_rulers(const std::string& words) {
    constexpr int most_lines = 12;
    std::string text;
    std::istringstream lines(words);
    int count = 0;
    for (std::string line; std::getline(lines, line) && count < most_lines;)
      if (line.find_first_not_of("- \t\r") != std::string::npos) text += (count++ == 0 ? "" : "\n") + line;
    return text;
  }

  void slurm(const std::string& id) {
    if (run_.slurm_state.empty()) return add(fmt::format("Slurm job {}; its state is unknown here", id));
    std::vector<std::string> words;
    for (const auto& [field, value] : run_.slurm_state)
      if (field != "EndUnix") words.push_back(field + "=" + value);
    add(fmt::format("Slurm job {}: {}", id, fmt::join(words, " ")));
  }

  void root_cause() {
    if (!diagnosis_.rank) return;
    const auto& rank = run_.ranks.at(static_cast<std::size_t>(*diagnosis_.rank));
    if (rank.end && rank.end->peak_memory_bytes > 0)
      add(fmt::format(
          "rank {} used at most {} of memory{}", rank.rank, describe_bytes(rank.end->peak_memory_bytes),
          rank.end->memory_limit_bytes > 0 ? fmt::format(", the limit of its control group is {}",
                                                         describe_bytes(rank.end->memory_limit_bytes))
                                           : ""));
    if (!rank.recorder && !rank.alive)
      add(fmt::format("rank {} has no flight recorder, so its step and phase are unknown", rank.rank));
    if (rank.log.last_lines.empty()) return;
    constexpr std::size_t most = 4;
    const auto& lines = rank.log.last_lines;
    for (auto i = lines.size() - std::min(most, lines.size()); i < lines.size(); ++i)
      add(fmt::format("rank {} printed: {}", rank.rank, lines[i]));
  }

  // Reports of the watchdogs over stalls and losses. Only the first of each kind is shown, because the
  // reports are similar on all ranks.
  void watch() {
    const auto first = [&](auto get) {
      for (const auto& rank : run_.ranks)
        if (const auto text = get(rank.log); !text.empty())
          return add(fmt::format("rank {} reported: {}", rank.rank, text));
    };
    first([](const LogEvidence& log) { return log.losses.empty() ? std::string() : log.losses.front(); });
    first([](const LogEvidence& log) { return log.stall; });
    first([](const LogEvidence& log) { return log.stall_end; });
  }

  void progress() {
    if (run_.last_step) add(fmt::format("metrics.jsonl ends at step {}", *run_.last_step));
    if (run_.nonfinite_since)
      add(fmt::format("the loss is not finite (NaN or infinite) since step {}", *run_.nonfinite_since));
    if (run_.checkpoint_step)
      add(fmt::format("the newest checkpoint is from step {}", *run_.checkpoint_step));
    if (!run_.other_checkpoint.empty())
      add(run_.other_checkpoint + " looks like a checkpoint of the program's own");
  }

  void space() {
    if (run_.job && run_.job->free_bytes && *run_.job->free_bytes < little_space)
      add(fmt::format("at the end, {} were free on the run directory's file system",
                      describe_bytes(*run_.job->free_bytes)));
    if (run_.free_bytes && *run_.free_bytes < little_space)
      add(fmt::format("{} are free on the file system of {}", describe_bytes(*run_.free_bytes),
                      run_.folder.string()));
    for (const auto& rank : run_.ranks)
      if (rank.log.disk_full)
        return add(fmt::format("rank {} reported that no space is left on a device", rank.rank));
  }

  void memory() {
    for (const auto& rank : run_.ranks)
      if (rank.log.memory_short) return add(fmt::format("rank {} could not allocate memory", rank.rank));
  }

  // "mpi: Open MPI v4.1.4 on ranks 0-2; Open MPI v4.1.6 on rank 3".
  void versions() {
    std::map<std::string, std::map<std::string, std::vector<int>>> ranks_by_value;
    for (const auto& rank : run_.ranks) {
      if (rank.recorder)
        for (const auto& [what, value] : rank.recorder->facts)
          ranks_by_value[what][value].push_back(rank.rank);
      if (rank.end && !rank.end->kernel.empty())
        ranks_by_value["kernel"][rank.end->kernel].push_back(rank.rank);
    }
    for (const auto& [what, values] : ranks_by_value) {
      if (values.size() < 2) continue;
      std::vector<std::string> parts;
      for (const auto& [value, ranks] : values)
        parts.push_back(fmt::format("{} on {}", value, describe_ranks(ranks)));
      add(fmt::format("{} differs between ranks: {}", what, fmt::join(parts, "; ")));
    }
  }

  const RunEvidence& run_;
  const Diagnosis& diagnosis_;
  std::vector<std::string> lines_;
};

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

// Returns whether `farandole analyze` has something to read.
bool has_timeline(const RunEvidence& run) {
  std::error_code ignored;
  return std::any_of(run.ranks.begin(), run.ranks.end(),
                     [](const auto& one) { return one.recorder.has_value(); }) ||
         std::filesystem::exists(run.folder / "timeline.json.gz", ignored) ||
         std::filesystem::exists(run.folder / "timeline.json", ignored);
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

void about_memory(const RunEvidence& run, std::vector<std::string>& next) {
  next.push_back(std::string("use less memory per rank: ") + remedy(Topic::less_memory, run.kind));
  next.emplace_back(!job_id(run).empty()
                        ? "or request more memory (sbatch --mem, --mem-per-cpu), or fewer ranks per node"
                        : "or use fewer ranks on the host, or a higher memory limit");
}

void about_kill(const std::string& host, const std::string& job, std::vector<std::string>& next) {
  next.push_back(
      fmt::format("check the kernel log on {}: dmesg -T | grep -i -B2 -A8 'killed process'", host));
  if (!job.empty())
    next.push_back(
        fmt::format("check Slurm's record: sacct -j {} -o JobID,State,ExitCode,MaxRSS,NodeList", job));
}

constexpr const char* mistake =
    "correct what the message names and start the run again; requeueing alone does not help";

void about_failure(const RunEvidence& run, const Diagnosis& diagnosis, std::vector<std::string>& next) {
  if (!diagnosis.rank) return;
  const auto& rank = run.ranks.at(static_cast<std::size_t>(*diagnosis.rank));
  if (rank.log.memory_short) about_memory(run, next);
  next.push_back(look_at_log(run, *diagnosis.rank));
  if (rank.end && rank.end->signal == 0 && rank.end->exit_code == static_cast<int>(ExitCode::user_error))
    next.emplace_back(mistake);
}

// Checkpoints are those of all starts.
std::string go_on(const RunEvidence& run) {
  if (is_earlier_start(run.folder)) {
    const auto all = (run.folder / "").lexically_normal().parent_path().parent_path().parent_path();
    return fmt::format("this is an earlier start of a run; for the last one: farandole doctor {}",
                       all.empty() ? "." : all.string());
  }
  if (run.checkpoint_step)
    return fmt::format("the same command continues from step {}{}", *run.checkpoint_step,
                       remedy(Topic::resume, run.kind));
  if (!run.other_checkpoint.empty())
    return fmt::format("start the program so that it continues from {}", run.other_checkpoint);
  return std::string("there is no checkpoint to continue from; ") + remedy(Topic::save_at_all, run.kind);
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
    next.push_back(
        fmt::format("rank {} was loading data: {}", rank.rank, remedy(Topic::check_data, run.kind)));
  next.emplace_back(remedy(Topic::watch_stalls, run.kind));
}

}  // namespace

std::vector<std::string> find_evidence(const RunEvidence& run, const Diagnosis& diagnosis) {
  return Finder(run, diagnosis).find();
}

std::vector<std::string> advise(const RunEvidence& run, const Diagnosis& diagnosis) {
  std::vector<std::string> next;
  const auto id = job_id(run);
  for (const auto& helper : run.stopped_helpers)
    next.push_back(fmt::format("continue {}: kill -CONT {}", helper.who, helper.pid));
  switch (diagnosis.cause) {
    case Cause::done:
      next.push_back(
          has_timeline(run)
              ? "farandole analyze " + run.folder.string()
              : std::string("nothing was recorded that farandole analyze could read; ") +
                    (run.kind == ProgramKind::python
                         ? "farandole run --run-dir RUN --trace-torch records a program that uses PyTorch"
                     : run.kind == ProgramKind::program
                         ? "farandole run --run-dir RUN --trace-torch records a PyTorch program, and --trace-mpi the MPI "
                           "calls of any program"
                         : "leave out --timeline off"));
      return next;
    case Cause::running:
      return next;
    case Cause::out_of_memory:
      about_memory(run, next);
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
      if (no_rank_began(run)) {
        next.push_back(fmt::format("correct what {} names and start the run again", run.job->starter));
        return next;
      }
      about_failure(run, diagnosis, next);
      break;
    case Cause::refused:
      next.emplace_back(mistake);
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
      next.push_back(std::string("use a longer sbatch --time, or sbatch --signal=USR1@120: ") +
                     remedy(Topic::save_before_limit, run.kind));
      break;
    case Cause::unknown:
      if (!run.job)
        next.emplace_back("the output of the launcher that started the ranks has their exit codes");
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

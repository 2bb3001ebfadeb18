#include "farandole/launch/launcher.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <poll.h>
#include <string_view>
#include <unistd.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/atomic_file.h"
#include "farandole/base/process/program.h"
#include "farandole/base/run/run_lease.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/base/text/phrases.h"
#include "farandole/launch/call_end.h"
#include "farandole/launch/launched_job.h"
#include "farandole/launch/process/child_process.h"
#include "farandole/launch/process/machine.h"
#include "farandole/launch/records/job_record.h"
#include "farandole/launch/records/launch_folder.h"
#include "farandole/launch/restart_policy.h"
#include "farandole/launch/slurm/allocation.h"
#include "farandole/launch/supervisor/rank_environment.h"
#include "farandole/launch/supervisor/supervisor.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

class Reporter {
 public:
  Reporter(fs::path run, std::chrono::seconds patience)
      : run_(std::move(run)), deadline_(std::chrono::steady_clock::now() + patience) {}

  // Returns what farandole-PROGRAM prints about the run; empty if it fails. why() then returns the reason.
  std::string ask(const char* program, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), (program_folder() / fmt::format("farandole-{}", program)).string());
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - std::chrono::steady_clock::now());
    const auto answer = left.count() > 0 ? run_command(arguments, left) : std::nullopt;
    if (answer && answer->exit_code == 0) return answer->text;
    why_ = answer ? answer->text.substr(0, answer->text.find('\n')) : "it took too long";
    return "";
  }
  const std::string& why() const { return why_; }
  bool has(const char* name) const {
    std::error_code absent;
    return fs::exists(run_ / name, absent);
  }

 private:
  const fs::path run_;
  const std::chrono::steady_clock::time_point deadline_;
  std::string why_;
};

// Makes the trace of the ranks' recorders, if rank 0 did not. Ranks of Python do not wait for each other at
// their end, and ranks that fail cannot.
void merge_recorders(const fs::path& run, std::chrono::seconds patience) {
  Reporter reporter(run, patience);
  if (reporter.has("timeline.json.gz")) return;
  reporter.ask("timeline", {"merge", run.string()});
  if (!reporter.has("timeline.json.gz"))
    fmt::print(stderr, "farandole run: the timeline is not merged: {}\n", printable(reporter.why()));
}

// Writes RUN/report.txt (why the job ended if it failed, and where the time went) and RUN/report.html. Prints
// a message about what is missing, for example because `patience` is over.
void write_run_report(const fs::path& run, int exit_code, std::chrono::seconds patience) {
  Reporter reporter(run, patience);
  const auto folder = run.string(), html = (run / "report.html").string();
  std::string text;
  if (exit_code != 0) text = reporter.ask("doctor", {folder}) + "\n";
  if (reporter.has("timeline.json.gz")) {
    const auto analysis = reporter.ask("analyze", {folder});
    reporter.ask("analyze", {folder, "--format", "html", "--output", html});
    if (analysis.empty() || !reporter.has("report.html"))
      fmt::print(stderr, "farandole run: the report of the timeline is missing: {}\n",
                 printable(reporter.why()));
    text += analysis;
  }
  if (!text.empty() && !replace_file(run / "report.txt", text))
    fmt::print(stderr, "farandole run: {} cannot be written\n", (run / "report.txt").string());
}

std::string path_variable() {
  const char* path = std::getenv("PATH");
  return path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// In a container, srun may be there without the configuration of Slurm.
void ask_srun(LaunchFacts& facts) {
  const auto types = run_command({"srun", "--mpi=list"}, std::chrono::seconds(30));
  facts.srun_has_pmix = is_set("SLURM_MPI_TYPE") ||
                        (types && types->exit_code == 0 && types->text.find("pmix") != std::string::npos);
  if (types && types->exit_code == 0) return;
  if (!types) {
    facts.srun_refusal = "srun --mpi=list does not answer";
    return;
  }
  const auto text = types->text.substr(0, types->text.find_last_not_of('\n') + 1);
  facts.srun_refusal = printable(text.substr(text.rfind('\n') + 1));  // npos + 1 is 0
}

LaunchFacts look_around(const LaunchRequest& request, int free_port) {
  LaunchFacts facts;
  facts.cores = usable_cores();
  facts.root = ::geteuid() == 0;
  facts.srun_found = find_program("srun", path_variable()).has_value();
  if (facts.srun_found && in_slurm_job(&std::getenv) && !request.local) ask_srun(facts);
  facts.mpirun_found = find_program("mpirun", path_variable()).has_value();
  facts.free_port = free_port;
  facts.terminal_columns = terminal_columns(STDOUT_FILENO);
  facts.programs = program_folder();
  return facts;
}

// Nobody may look at the output of a job that Slurm starts, so the doctor tells why it was refused. A run
// directory that is there stays as it is.
void note_refusal(const LaunchRequest& request, const UserError& why) {
  std::error_code error;
  if (!in_slurm_job(&std::getenv) || request.run_dir.empty() || fs::exists(request.run_dir, error) ||
      !fs::create_directories(request.run_dir / "launch", error))
    return;
  auto job = record_start(std::max(1, request.ranks.value_or(1)), "srun", request.program);
  job.exit_code = static_cast<int>(why.exit_code());
  job.message = why.what();
  job.end_ns = real_time_ns();
  write_job(request.run_dir / "launch/job.json", job);
}

LaunchedRun find_run(const LaunchRequest& request, const fs::path& log_folder) {
  auto run = find_launched_run(request.program, request.run_dir, log_folder, &std::getenv);
  if (!run.folder.empty()) refuse_if_in_use(run.folder);
  return run;
}

fs::path make_log_folder(const fs::path& folder) {
  if (folder.empty()) return "";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || ::access(folder.c_str(), W_OK) != 0)
    throw UserError("the folder for the logs, " + folder.string() +
                    ", cannot be written; choose another --run-dir or --log-dir");
  return fs::absolute(folder);
}

// The ranks of a job end after mpirun if it was killed. Until then they write into the run directory. Returns
// false if a signal told this process to end.
// Throws: UserError if the run directory is in use for too long.
bool await_end_of_ranks(const fs::path& run) {
  const auto signals = signal_descriptor({SIGTERM, SIGINT, SIGHUP, SIGQUIT});
  constexpr std::int64_t patience_ns = 60'000'000'000;
  constexpr int pause_ms = 20;
  for (const auto begin_ns = now_ns();;) {
    try {
      refuse_if_in_use(run);
      return true;
    } catch (const UserError&) {
      if (now_ns() - begin_ns > patience_ns) throw;
    }
    pollfd told{signals.get(), POLLIN, 0};
    if (::poll(&told, 1, pause_ms) > 0) return false;
  }
}

// Between two starts, the signals that the launcher passes on stay blocked.
bool is_pending(int signal) {
  sigset_t pending;
  return ::sigpending(&pending) == 0 && ::sigismember(&pending, signal) == 1;
}

void show_diagnosis(const fs::path& run) {
  constexpr std::chrono::seconds patience(60);
  const auto doctor = program_folder() / "farandole-doctor";
  if (const auto report = output_of({doctor.string(), run.string()}, patience))
    fmt::print(stderr, "\n{}", *report);
}

fs::path folder_of_logs(const LaunchRequest& request) {
  if (!request.report || !request.log_folder.empty()) return request.log_folder;
  const auto run = find_run(request, "");
  return run.folder.empty() ? fs::path() : run.folder / "logs";
}

// A program that is to be recorded with PyTorch runs in any case.
fs::path find_log_folder(const LaunchRequest& request) try {
  return make_log_folder(folder_of_logs(request));
} catch (const UserError& error) {
  if (!request.trace_torch) throw;
  fmt::print(stderr, "farandole run: no logs are kept: {}\n", error.what());
  return "";
}

void set_variable(EnvironmentChanges& changes, const char* name, std::string value) {
  std::erase_if(changes, [&](const auto& change) { return change.first == name; });
  changes.emplace_back(name, std::move(value));
}

// The report comes before a requeue, which ends this process, unless Slurm ends it soon in any case.
void conclude(const LaunchRequest& request, const JobEnd& end) {
  const auto decision =
      request.requeue ? decide_requeue(end, *request.requeue, &std::getenv) : RequeueDecision{};
  if (!decision.message.empty()) fmt::print(stderr, "farandole run: {}\n", decision.message);
  if (decision.by_slurm) note_requeue(end);
  if (decision.requeue && decision.at_once) requeue(end, &std::getenv);
  constexpr std::chrono::seconds before_requeue(60), without_hurry(600);
  const auto patience = decision.requeue ? before_requeue : without_hurry;
  if (end.recorded) merge_recorders(end.run, patience);
  if (request.report && !end.run.empty())
    write_run_report(end.run, end.exit_code, patience);
  else if (request.report)
    fmt::print(
        stderr,
        "farandole run: there is no report, because the program has no run directory; add --run-dir\n");
  if (decision.requeue && !decision.at_once) requeue(end, &std::getenv);
}

}  // namespace

fs::path require_program(const std::string& program) {
  if (const auto found = find_program(program, path_variable() + ":" + program_folder().string()))
    return *found;
  if (std::error_code ignored; program.find('/') != program.npos && fs::is_regular_file(program, ignored))
    throw UserError(fmt::format("'{0}' is not executable; make it so with chmod +x {0}", program));
  throw UserError("cannot find an executable program '" + program +
                  "'; give its path, or add its folder to PATH");
}

void check_torch_backend(const std::string& backend) {
  if (backend != "farandole")
    throw UserError("--torch-backend cannot be '" + backend +
                    "'; it is farandole, and without it the program chooses");
}

int launch(const LaunchRequest& first_request) try {
  auto request = first_request;
  if (request.program.empty())
    throw UserError("no program to start; write farandole run -n 4 -- PROGRAM ARGUMENTS");
  const auto port = hold_tcp_port();
  const auto make_plan = [&] {
    return plan_launch(request, look_around(request, port.number), &std::getenv);
  };
  LaunchPlan plan;
  try {
    plan = make_plan();
  } catch (const UserError& error) {
    note_refusal(request, error);
    throw;
  }
  if (request.min_ranks && (*request.min_ranks > plan.ranks || request.max_restarts == 0))
    throw UserError(fmt::format("--min-ranks {} has no effect on {} rank{} with --max-restarts {}",
                                *request.min_ranks, plan.ranks, plan.ranks == 1 ? "" : "s",
                                request.max_restarts));
  const auto program = require_program(request.program.front());
  if (request.trace_mpi) require_mpi_trace(program);
  if (request.trace_torch) require_python("--trace-torch");
  if (request.torch_backend) require_python("--torch-backend");
  if (request.horovod) require_python("--horovod");
  if ((request.trace_mpi || request.trace_torch) && find_run(request, request.log_folder).folder.empty())
    throw UserError(fmt::format("{} needs a run directory to record in; add --run-dir RUN",
                                request.trace_mpi ? "--trace-mpi" : "--trace-torch"));
  if (request.requeue && !is_set("SLURM_JOB_ID"))
    throw UserError("--requeue works only in a Slurm job; submit the script with sbatch");
  const auto log_folder = find_log_folder(request);
  auto run = find_run(request, log_folder);
  RestartPolicy policy(request.max_restarts);
  for (;;) {
    auto end = run_job(request, plan, log_folder, run);
    auto decision = policy.decide(end);
    LostHosts lost;
    if (decision.restart && !request.local)
      lost = look_for_lost_hosts(plan.ranks, request.min_ranks, end.complete);
    if (lost.too_many || lost.unanswered) {
      decision.restart = false;
      decision.message.clear();
    }
    end.unanswered = lost.unanswered;
    for (const auto& line : {lost.message, decision.message})
      if (!line.empty()) fmt::print(stderr, "farandole run: {}\n", line);
    if (decision.diagnose && !end.run.empty()) show_diagnosis(end.run);
    auto again = decision.restart && (end.run.empty() || await_end_of_ranks(end.run));
    if (again && (end.told_to_save || is_pending(SIGUSR1))) {
      fmt::print(
          stderr,
          "farandole run: the ranks are not started again, because SIGUSR1 asks them to save and to end; "
          "the same command continues from the newest checkpoint\n");
      end.exit_code = static_cast<int>(ExitCode::preempted);
      again = false;
    }
    if (!again) {
      conclude(request, end);
      return end.exit_code;
    }
    if (!end.run.empty()) run = {end.run, true};  // The ranks may have told it.
    if (lost.ranks) {
      request.ranks = lost.ranks;
      plan = make_plan();
    }
    set_variable(plan.environment, restarts_variable, std::to_string(policy.restarts()));
    // As `srun --overlap`: Slurm counts the step before this one as running until a lost host is given up.
    set_variable(plan.environment, "SLURM_OVERLAP", "1");
  }
} catch (const Error& error) {
  if (!first_request.folder_of_caller.empty())
    write_call_end(first_request.folder_of_caller, {static_cast<int>(error.exit_code()), {}, error.what()});
  throw;
}

bool is_supervisor(int argc, const char* const* argv) {
  return argc >= 2 && argv[1] == supervise_flag;
}

int run_supervisor(int argc, const char* const* argv) {
  auto options = SupervisorOptions::parse({argv + 1, argv + argc});
  const auto rank = launched_rank([](const char* name) { return std::getenv(name); });
  if (!options || !rank)
    throw UserError("--supervise is for farandole run itself; use farandole run -n 4 -- PROGRAM ARGUMENTS");
  options->rank = rank->value;
  return supervise(*options);
}

namespace {

struct LaunchedBy {
  pid_t pid = 0;
  std::filesystem::path folder;
};

LaunchedBy parse_launched_by(const Environment& environment) {
  const char* value = environment(launched_by_variable);
  const std::string_view text = value == nullptr ? "" : value;
  const auto colon = text.find(':');
  if (colon == text.npos) return {};
  return {parse_number<pid_t>(text.substr(0, colon)).value_or(0), text.substr(colon + 1)};
}

}  // namespace

std::string launched_by(const std::filesystem::path& folder) {
  return fmt::format("{}:{}", ::getpid(), folder.string());
}

std::filesystem::path folder_of_caller(const Environment& environment) {
  const auto [pid, folder] = parse_launched_by(environment);
  return pid == ::getppid() ? folder : "";
}

std::filesystem::path folder_of_launch(const Environment& environment) {
  return parse_launched_by(environment).folder;
}

}  // namespace farandole

#include "farandole/launch/supervisor/supervisor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/host.h"
#include "farandole/base/process/cores.h"
#include "farandole/base/process/process_state.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/output/stream_relay.h"
#include "farandole/launch/process/machine.h"
#include "farandole/launch/process/memory.h"
#include "farandole/launch/records/rank_record.h"
#include "farandole/launch/records/session_folder.h"
#include "farandole/launch/supervisor/rank_environment.h"
#include "farandole/launch/supervisor/supervised_run.h"

namespace farandole {
namespace {

// How each option is read from text and written to text. "" means that the option is not written.
struct Option {
  std::function<std::string(const SupervisorOptions&)> text;
  std::function<void(SupervisorOptions&, const std::string&)> take;
};

template <class Member>
Option option(Member SupervisorOptions::*member) {
  return {[=](const SupervisorOptions& options) { return std::string(options.*member); },
          [=](SupervisorOptions& options, const std::string& text) { options.*member = text; }};
}
Option option(bool SupervisorOptions::*member) {
  return {[=](const SupervisorOptions& options) { return std::string(options.*member ? "yes" : ""); },
          [=](SupervisorOptions& options, const std::string&) { options.*member = true; }};
}

const std::map<std::string, Option>& all_options() {
  static const std::map<std::string, Option> all = {
      {"ranks",
       {[](const auto& options) { return std::to_string(options.world_size); },
        [](auto& options, const auto& text) { options.world_size = parse_number<int>(text).value_or(1); }}},
      {"folder", option(&SupervisorOptions::folder)},
      {"mpirun", option(&SupervisorOptions::mpirun)},
      {"own", option(&SupervisorOptions::own)},
      {"prefix", option(&SupervisorOptions::prefix)},
      {"log-folder", option(&SupervisorOptions::log_folder)},
      {"run",
       {[](const auto& options) { return options.run.folder.string(); },
        [](auto& options, const auto& text) { options.run.folder = text; }}},
      {"logged",
       {[](const auto& options) { return std::string(options.run.logged ? "yes" : ""); },
        [](auto& options, const auto&) { options.run.logged = true; }}},
      {"launch", option(&SupervisorOptions::launch)},
      {"word", option(&SupervisorOptions::word)},
      {"threads",
       {[](const auto& options) { return options.threads > 0 ? std::to_string(options.threads) : ""; },
        [](auto& options, const auto& text) { options.threads = parse_number<int>(text).value_or(0); }}},
      {"trace-mpi", option(&SupervisorOptions::trace_mpi)},
      {"trace-torch", option(&SupervisorOptions::trace_torch)},
      {"torch-backend", option(&SupervisorOptions::torch_backend)},
      {"horovod", option(&SupervisorOptions::horovod)},
  };
  return all;
}

}  // namespace

std::vector<std::string> SupervisorOptions::to_arguments() const {
  std::vector<std::string> arguments = {std::string(supervise_flag)};
  for (const auto& [name, option] : all_options())
    if (const auto text = option.text(*this); !text.empty())
      arguments.push_back(fmt::format("--{}={}", name, text));
  arguments.emplace_back("--");
  arguments.insert(arguments.end(), program.begin(), program.end());
  return arguments;
}

std::optional<SupervisorOptions> SupervisorOptions::parse(const std::vector<std::string>& arguments) {
  SupervisorOptions options;
  if (arguments.empty() || arguments.front() != supervise_flag) return std::nullopt;
  auto word = arguments.begin() + 1;
  for (; word != arguments.end() && *word != "--"; ++word) {
    const auto equals = word->find('=');
    if (!word->starts_with("--") || equals == std::string::npos) return std::nullopt;
    const auto found = all_options().find(word->substr(2, equals - 2));
    if (found == all_options().end()) return std::nullopt;
    found->second.take(options, word->substr(equals + 1));
  }
  if (word == arguments.end() || ++word == arguments.end()) return std::nullopt;
  options.program.assign(word, arguments.end());
  return options;
}

namespace {

using Clock = std::chrono::steady_clock;

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options);
  int run();

 private:
  void start();
  void tell(LineKind kind, std::string_view text) {
    to_launcher_.push(mark_lines({options_.word, options_.rank, kind}, text));
  }
  void announce_step() const;
  void serve(std::optional<Clock::time_point> deadline);
  void take_signals();
  void pass_on(int number);
  void wait_for_orphans();
  void kill_orphans();
  void kill_program();
  void read_rest();
  void drain();
  void note_memory();
  void bring_recorder();
  bool report();
  void wait_for_peers();

  const SupervisorOptions& options_;
  OwnedDescriptor signals_;
  OwnedDescriptor parent_;  // A pidfd: it becomes readable when the parent has ended.
  OutputQueue to_launcher_{STDERR_FILENO};
  std::ofstream log_;
  std::optional<StreamRelay> out_, err_;
  std::optional<ChildProcess> child_;
  SupervisedRun run_;
  MemoryWatch memory_;
  RankRecord record_;
  std::optional<AnnouncedAbort> abort_;  // Of this rank, before it was asked to stop.
  bool killed_ = false;                  // The program gets no more time to end.
  bool abandoned_ = false;  // The parent has ended; possibly no process reads the output any more.
};

OwnedDescriptor watch_parent() {
  return OwnedDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0)));
}

// Processes that the program has left running become children of this process (PR_SET_CHILD_SUBREAPER).
std::vector<std::int64_t> living_children() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  return children_of(::getpid());
}

// mpirun reads up to 4096 bytes at a time from this pipe, and puts the output of other ranks after them. In
// packet mode (since Linux 4.5) one read returns what one write has written, which are whole lines.
void keep_packets_apart(int pipe) {
  if (const int flags = ::fcntl(pipe, F_GETFL); flags >= 0) ::fcntl(pipe, F_SETFL, flags | O_DIRECT);
}

// Number of the job of Open MPI 4.
std::optional<std::uint32_t> number_of_open_mpi_job() {
  const char* const job = std::getenv("OMPI_MCA_ess_base_jobid");
  return job != nullptr ? parse_number<std::uint32_t>(job) : std::nullopt;
}

std::string describe_end(const RankRecord& record) {
  return record.signal != 0 ? fmt::format("killed by signal {} ({})", record.signal, strsignal(record.signal))
                            : fmt::format("exit code {}", record.exit_code);
}

Supervisor::Supervisor(const SupervisorOptions& options)
    : options_(options),
      signals_(signal_descriptor(
          {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, kill_signal})),
      parent_(watch_parent()),
      run_(options.run, options.rank) {
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  record_.rank = options.rank;
  record_.host = host_name();
  record_.launch = options.launch;
  if (utsname system{}; ::uname(&system) == 0) record_.kernel = system.release;
  if (options.mpirun) keep_packets_apart(STDERR_FILENO);
  if (const auto job = number_of_open_mpi_job(); job && options.rank == 0)
    note_open_mpi_job(options.folder, *job);
  tell(LineKind::start, fmt::format("{} {}\n", ::getpid(), record_.host));
  if (!options.log_folder.empty()) {
    const auto path = log_of(options.log_folder, options.rank);
    log_.open(path, std::ios::app);
    if (!log_)
      throw UserError(fmt::format("rank {} cannot write its log {}: {}; choose another --log-dir",
                                  options.rank, path.string(), std::strerror(errno)));
    log_ << fmt::format("--- {:%Y-%m-%d %H:%M:%S}: rank {} of {} on {}: {}\n",
                        fmt::localtime(std::time(nullptr)), options.rank, options.world_size, record_.host,
                        fmt::join(options.program, " "))
         << std::flush;
  }
}

void Supervisor::start() {
  auto out = make_pipe();
  auto err = make_pipe();
  LineFormatter::Mark mark;
  if (options_.prefix) mark = [rank = options_.rank] { return fmt::format("[{} {}] ", rank, time_of_day()); };
  auto* log = log_.is_open() ? &log_ : nullptr;
  const ChildStreams streams{-1, out.write_end.get(), err.write_end.get()};
  out_.emplace(std::move(out.read_end), to_launcher_, LineMark{options_.word, options_.rank, LineKind::out},
               mark, log);
  err_.emplace(std::move(err.read_end), to_launcher_, LineMark{options_.word, options_.rank, LineKind::err},
               mark, log);
  record_.start_ns = real_time_ns();
  auto changes = torch_environment(options_.rank, options_.world_size, &std::getenv);
  changes.emplace_back(supervised_variable, options_.folder / "aborting");
  changes.emplace_back(meeting_variable, options_.folder / "meeting");
  if (options_.threads > 0)  // The rank may be bound to fewer cores than the launcher knew.
    changes.emplace_back("OMP_NUM_THREADS", std::to_string(std::min(options_.threads, allowed_cores())));
  if (options_.trace_mpi) {
    const auto tracing = mpi_trace_environment(&std::getenv);
    changes.insert(changes.end(), tracing.begin(), tracing.end());
  }
  const auto python =
      python_environment({options_.trace_torch, options_.torch_backend, options_.horovod}, &std::getenv);
  changes.insert(changes.end(), python.begin(), python.end());
  if (options_.trace_mpi || options_.trace_torch)
    changes.emplace_back("FARANDOLE_RUN_DIR", options_.run.folder);
  if (std::getenv(stack_signals_variable) == nullptr) changes.emplace_back(stack_signals_variable, "");
  changes.push_back(run_.question());
  // SIGUSR2 requests a trace. It must not end a program that does not handle it, or does not handle it yet.
  const auto ignored = options_.run.folder.empty() ? std::vector<int>() : std::vector<int>{SIGUSR2};
  child_.emplace(options_.program, streams, SIGKILL, changes, ignored);
  record_.pid = child_->pid();
  announce_step();
}

void Supervisor::take_signals() {
  signalfd_siginfo info;
  const bool was_told = record_.told;
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD || static_cast<pid_t>(info.ssi_pid) == ::getpid()) continue;
    if (number == kill_signal) {
      kill_program();
      continue;
    }
    if (number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT) record_.told = true;
    if (record_.asked_signal == 0 && (record_.told || number == SIGUSR1)) {
      record_.asked_signal = number;
      record_.asked_ns = real_time_ns();
    }
    const bool to_the_group = static_cast<int>(info.ssi_code) == SI_KERNEL ||
                              (!options_.own && static_cast<pid_t>(info.ssi_pid) == ::getppid());
    if (!to_the_group) pass_on(number);
    if (number == SIGTSTP) ::raise(SIGSTOP);
  }
  if (!record_.told || was_told) return;
  abort_ = read_abort(options_.folder / "aborting");
  if (abort_ && abort_->rank != options_.rank) abort_.reset();
  run_.save_recorder();
}

// If the rank has a process group of its own, as with mpirun, the signal goes to the whole group, because the
// commands of a script must also receive SIGTERM.
void Supervisor::pass_on(int number) {
  if (::getpgrp() == ::getpid()) {
    ::kill(0, number);  // This process also receives it, and recognizes that it sent it.
  } else if (child_) {
    child_->signal(number);
  }
}

// A script dies of SIGTERM before its commands end. These commands get the time that they need, for example
// to save, as the program itself does. Commands that all ignore SIGTERM get only a limited time. A process
// with a session of its own (setsid) is no command.
void Supervisor::wait_for_orphans() {
  constexpr std::chrono::seconds patience(5);
  constexpr std::chrono::milliseconds pause(500);  // Descendants that are no children end without SIGCHLD.
  const auto is_command = [](std::int64_t pid) { return ::getsid(static_cast<pid_t>(pid)) == ::getsid(0); };
  const auto may_react = [&](std::int64_t pid) {
    const auto process = read_process_state(pid);
    return process && process->state != 'Z' && is_command(pid) && !ignores_signal(pid, SIGTERM);
  };
  auto deadline = Clock::now() + patience;
  while (record_.told && !killed_) {
    const auto children = living_children();
    if (std::none_of(children.begin(), children.end(), is_command)) return;
    const auto all = descendants_of(::getpid());
    const auto now = Clock::now();
    if (std::any_of(all.begin(), all.end(), may_react)) deadline = now + patience;
    if (now >= deadline) return;
    serve(std::min(deadline, now + pause));
  }
}

// Ends the processes that the program has left running. Their own children become children of this process as
// they end, before SIGCHLD arrives.
void Supervisor::kill_orphans() {
  const auto deadline = Clock::now() + std::chrono::seconds(5);
  for (auto children = living_children(); !children.empty(); children = living_children()) {
    for (const auto pid : children) ::kill(static_cast<pid_t>(pid), SIGKILL);
    if (Clock::now() >= deadline)
      return tell(LineKind::err, fmt::format("farandole run: rank {} ({}): process {} cannot be ended\n",
                                             record_.rank, record_.host, children.front()));
    serve(deadline);
  }
}

void Supervisor::kill_program() {
  record_.told = killed_ = true;
  if (child_) child_->signal(SIGKILL);
}

// Announces the step, so that the launcher can signal its ranks. srun itself would kill them.
void Supervisor::announce_step() const {
  const char* job = std::getenv("SLURM_JOB_ID");
  const char* step = std::getenv("SLURM_STEP_ID");
  if (options_.rank != 0 || job == nullptr || step == nullptr ||
      !std::filesystem::is_directory(options_.folder))
    return;
  std::ofstream(options_.folder / "step") << job << "." << step << "\n";
}

// One iteration: waits for an event or until `deadline`, and handles the event.
void Supervisor::serve(std::optional<Clock::time_point> deadline) {
  const bool accepts = to_launcher_.accepts();
  std::array<pollfd, 5> waiting = {{{signals_.get(), POLLIN, 0},
                                    {parent_.get(), POLLIN, 0},
                                    {accepts ? out_->source() : -1, POLLIN, 0},
                                    {accepts ? err_->source() : -1, POLLIN, 0},
                                    {to_launcher_.empty() ? -1 : to_launcher_.descriptor(), POLLOUT, 0}}};
  const auto left =
      deadline ? std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count() : -1;
  ::poll(waiting.data(), waiting.size(), deadline ? static_cast<int>(std::max<std::int64_t>(left, 0)) : -1);
  if (waiting[0].revents != 0) take_signals();
  if (waiting[1].revents != 0) {
    abandoned_ = true;
    parent_.reset();
    kill_program();
  }
  if (waiting[2].revents != 0) out_->read_some();
  if (waiting[3].revents != 0) err_->read_some();
  if (waiting[4].revents != 0) to_launcher_.write_some();
}

// Reads what the program has written to the pipes before it ended. Processes that it left behind may hold the
// pipes open; this call does not wait for them.
void Supervisor::read_rest() {
  for (auto* relay : {&*out_, &*err_}) {
    while (relay->read_some()) {
    }
    relay->finish();
  }
}

void Supervisor::drain() {
  while (!to_launcher_.empty() && !abandoned_) serve(std::nullopt);
}

// Returns false if the launcher's folder does not exist.
bool Supervisor::report() {
  record_.last_words = err_->last_lines();
  if (abort_) take_abort(record_, *abort_);
  run_.end(record_);
  if (log_.is_open()) log_ << "--- " << describe_end(record_) << "\n" << std::flush;
  return options_.folder.empty() || write_record(options_.folder, record_);
}

// mpirun and srun kill all ranks as soon as one rank fails. If the program stops on every rank (it refuses
// to start, or saves a checkpoint before preemption), the ranks end at different times, and a rank that lost
// a peer may end before that peer, which is still cleaning up. Therefore this rank waits for the others for
// a limited time.
void Supervisor::wait_for_peers() {
  const auto code = static_cast<ExitCode>(record_.exit_code);
  const bool preempted = code == ExitCode::preempted, lost_a_peer = code == ExitCode::peer_lost;
  if (abort_ || record_.signal != 0 ||
      (code != ExitCode::user_error && code != ExitCode::corrupt_input && !preempted && !lost_a_peer))
    return;
  const auto deadline = Clock::now() + std::chrono::seconds(preempted ? 30 : lost_a_peer ? 5 : 2);
  int ended = 0;
  while (!record_.told && parent_.get() >= 0 && Clock::now() < deadline &&
         std::filesystem::is_directory(options_.folder)) {
    const int before = std::exchange(ended, count_records(options_.folder));
    if (ended >= options_.world_size) return;
    if (lost_a_peer && ended != before &&
        !is_victim(first_failure(read_records(options_.folder)).value_or(record_)))
      return;
    serve(Clock::now() + std::chrono::milliseconds(20));
  }
}

// Reads the counters before the other processes of the control group end.
void Supervisor::note_memory() {
  record_.peak_memory_bytes = child_->end().peak_memory_bytes;
  record_.memory_limit_bytes = memory_.limit_bytes().value_or(0);
  if (record_.signal == SIGKILL && !record_.told) record_.out_of_memory = memory_.evidence(child_->pid());
}

void Supervisor::bring_recorder() {
  try {
    run_.bring_recorder();
  } catch (const Error& error) {
    tell(LineKind::err,
         fmt::format("farandole run: rank {} ({}): the recorder file could not be copied from its node: {}\n",
                     record_.rank, record_.host, error.what()));
  }
}

int Supervisor::run() {
  try {
    start();
    while (!child_->has_ended()) serve(std::nullopt);
    record_.exit_code = child_->end().exit_code;
    record_.signal = child_->end().signal;
    note_memory();
    // This comes first, because mpirun may kill this process one second after SIGTERM. Commands of a script
    // may still be writing.
    record_.told ? run_.save_recorder() : bring_recorder();
  } catch (const UserError& error) {  // The program could not be started.
    record_.exit_code = static_cast<int>(error.exit_code());
    tell(LineKind::err,
         fmt::format("farandole run: rank {} ({}): {}\n", record_.rank, record_.host, error.what()));
  }
  record_.time_ns = real_time_ns();
  wait_for_orphans();
  kill_orphans();
  if (const auto job = number_of_open_mpi_job())
    if (const char* const local_rank = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK"))
      remove_shared_memory(*job, local_rank);
  if (record_.told) bring_recorder();
  read_rest();
  if (!report()) tell(LineKind::record, record_line(record_));
  drain();
  wait_for_peers();
  tell(LineKind::end, record_.failed() && !record_.told ? "failed\n" : "\n");
  drain();
  return record_.shell_code();
}

}  // namespace

std::filesystem::path log_of(const std::filesystem::path& log_folder, int rank) {
  return log_folder / fmt::format("rank-{:04}.log", rank);
}

int supervise(const SupervisorOptions& options) {
  return Supervisor(options).run();
}

}  // namespace farandole

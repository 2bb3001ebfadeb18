#include "farandole/launch/launched_job.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <optional>
#include <poll.h>
#include <sstream>
#include <sys/signalfd.h>
#include <unistd.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/host.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/call_end.h"
#include "farandole/launch/outcome.h"
#include "farandole/launch/output/lines.h"
#include "farandole/launch/output/marked_lines.h"
#include "farandole/launch/output/output_queue.h"
#include "farandole/launch/records/job_record.h"
#include "farandole/launch/records/session_folder.h"
#include "farandole/launch/supervisor/supervisor.h"
#include "farandole/timeline/recorder/recorder_cut.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

fs::path own_program() {
  return fs::read_symlink("/proc/self/exe");
}

class Launcher {
 public:
  Launcher(const LaunchRequest& request, LaunchPlan plan, const fs::path& log_folder, LaunchedRun run)
      : plan_(std::move(plan)),
        own_(plan_.starter == Starter::own),
        trace_mpi_(request.trace_mpi),
        trace_torch_(request.trace_torch),
        log_folder_(log_folder),
        folder_of_caller_(request.folder_of_caller),
        run_(std::move(run)),
        launch_folder_(run_),
        job_(record_start(plan_.ranks, own_ ? own_starter : plan_.command.front(), request.program)),
        folder_(parent_of_temporary()),
        signals_(signal_descriptor(
            {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT})) {
    ::signal(SIGPIPE, SIG_IGN);
    if (!log_folder_.empty()) go_on();
    auto err = make_pipe();
    starter_err_ = std::move(err.read_end);
    ::fcntl(starter_err_.get(), F_SETFL, O_NONBLOCK);
    auto command = plan_.command;
    command.push_back(own_program());
    const auto supervisor = supervisor_options(request).to_arguments();
    command.insert(command.end(), supervisor.begin(), supervisor.end());
    auto environment = plan_.environment;
    if (plan_.starter == Starter::mpirun) {
      const auto session = session_environment(folder_.path(), &std::getenv);
      environment.insert(environment.end(), session.begin(), session.end());
    }
    begun_ = launch_folder_.begin(job_);
    Pipe input;
    if (::isatty(STDIN_FILENO) != 0) input = make_pipe();
    to_starter_ = std::move(input.write_end);
    ::fcntl(to_starter_.get(), F_SETFL, O_NONBLOCK);
    const OwnedDescriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    // srun and mpirun would end the ranks after Ctrl-C. This process tells the ranks instead, so that
    // they can save.
    try {
      const int started = own_ ? plan_.ranks : 1, size = plan_.ranks;
      for (int rank = 0; rank < started; ++rank) {
        auto changes = environment;
        for (const auto& [name, value] : {std::pair("RANK", rank), std::pair("SIZE", size),
                                          std::pair("LOCAL_RANK", rank), std::pair("LOCAL_SIZE", size)})
          changes.emplace_back(fmt::format("FARANDOLE_{}", name),
                               own_ ? std::optional(std::to_string(value)) : std::nullopt);
        const int in = rank == 0 ? input.read_end.get() : nothing.get();
        starters_.emplace_back(command, ChildStreams{in, -1, err.write_end.get()}, SIGTERM, changes,
                               std::vector<int>(), own_ ? ChildGroup::of_supervisor : ChildGroup::own);
      }
    } catch (const Error& error) {
      job_.exit_code = static_cast<int>(error.exit_code());
      job_.message = error.what();
      job_.end_ns = real_time_ns();
      launch_folder_.end(job_, {});
      throw;
    }
  }

  JobEnd run() {
    while (!have_ended()) {
      end_others();
      serve(false, kill_ns_ == 0 ? look_ms : look_ms / 10);
      end_hung_starter();
    }
    while (take_starter_err()) {
    }
    lines_.finish();
    for (auto& [rank, lines] : ranks_lines_) lines.finish();
    out_.finish();
    err_.finish();
    return conclude();
  }

 private:
  SupervisorOptions supervisor_options(const LaunchRequest& request) const {
    SupervisorOptions options;
    options.world_size = plan_.ranks;
    options.folder = folder_.path();
    options.mpirun = plan_.starter == Starter::mpirun;
    options.own = own_;
    options.prefix = request.prefix;
    options.log_folder = log_folder_;
    options.run = run_;
    options.launch = job_.launch;
    options.word = word_;
    options.threads = plan_.threads;
    options.trace_mpi = request.trace_mpi;
    options.trace_torch = request.trace_torch;
    options.torch_backend = request.torch_backend;
    options.horovod = request.horovod;
    options.program = request.program;
    return options;
  }

  // The ranks of a Slurm job may run on other hosts. They surely share the folder for the logs, and without
  // it probably the working directory.
  fs::path parent_of_temporary() const {
    if (in_slurm_job(&std::getenv) && !log_folder_.empty()) return log_folder_;
    std::error_code gone;
    const auto here = fs::current_path(gone);
    if (!own_ && several_nodes() && !here.empty() && ::access(here.c_str(), W_OK) == 0) return here;
    return fs::temp_directory_path();
  }

  // The run directory changes when the ranks begin to run. Looks about once a second, also if the
  // ranks say nothing.
  static constexpr int look_ms = 1000;
  void note_begin() {
    if (begun_ || now_ns() - looked_ns_ < std::int64_t{look_ms} * 1'000'000) return;
    looked_ns_ = now_ns();
    begun_ = launch_folder_.begin(job_);
  }

  // One iteration: waits for the next event and handles it. `only_write`: handles only pending output and
  // signals. Returns false if none occurred in `limit_ms`; -1: no limit.
  bool serve(bool only_write, int limit_ms) {
    // A process in the background would be stopped if it read from its terminal.
    const bool may_type =
        to_starter_.get() >= 0 && typed_.empty() && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
    const bool may_read = !only_write && accepts_output();
    if (!only_write && !may_read && limit_ms < 0) limit_ms = static_cast<int>(OutputQueue::patience.count());
    std::array<pollfd, 6> waiting = {{{signals_.get(), POLLIN, 0},
                                      {may_read ? starter_err_.get() : -1, POLLIN, 0},
                                      {out_.empty() ? -1 : out_.descriptor(), POLLOUT, 0},
                                      {err_.empty() ? -1 : err_.descriptor(), POLLOUT, 0},
                                      {may_type ? STDIN_FILENO : -1, POLLIN, 0},
                                      {typed_.empty() ? -1 : to_starter_.get(), POLLOUT, 0}}};
    const int ready = ::poll(waiting.data(), waiting.size(), limit_ms);
    note_begin();
    if (waiting[0].revents != 0) take_signals();
    if (waiting[1].revents != 0) take_starter_err();
    if (waiting[2].revents != 0) out_.write_some();
    if (waiting[3].revents != 0) err_.write_some();
    if (waiting[4].revents != 0) take_typed();
    if (waiting[5].revents != 0) pass_typed();
    if (out_.broken() || err_.broken()) end_without_reader();
    return ready > 0;
  }

  bool accepts_output() const { return out_.accepts() && err_.accepts(); }

  // A rank that waits for the reader of the output could not react to a signal.
  void go_on() {
    out_.go_on(where_else());
    err_.go_on(where_else());
  }

  const char* where_else() const { return log_folder_.empty() ? "" : "; the ranks' logs have them"; }

  // A program of its own would get SIGPIPE. The ranks get SIGTERM, so that they can save.
  void end_without_reader() {
    if (signal_ != 0 || have_ended()) return;
    signal_ = SIGPIPE;
    job_.signals.push_back({SIGPIPE, real_time_ns()});
    err_.push("farandole run: the reader of the output has ended, so the ranks are asked to end\n");
    if (!signal_ranks(SIGTERM)) signal_starters(SIGTERM);
  }

  void write_some() {
    while ((!out_.empty() || !err_.empty()) && serve(true, 0)) {
    }
  }

  // Waits for the reader of the output, unless the job was ended by force. The next signal ends this.
  void drain() {
    const int before = endings_;
    while ((!out_.empty() || !err_.empty()) && endings_ == before && before < forced) serve(true, -1);
    write_some();
  }

  LineSplitter& lines_of(int rank, LineKind kind) {
    auto& queue = kind == LineKind::out ? out_ : err_;
    return ranks_lines_.try_emplace({rank, kind}, [&queue](std::string_view line) { queue.push(line); })
        .first->second;
  }

  void take_line(int rank, LineKind kind, std::string_view text) {
    switch (kind) {
      case LineKind::out:
      case LineKind::err:
        return lines_of(rank, kind).feed(text);
      case LineKind::start:
        return note_supervisor(rank, std::string(text));
      case LineKind::record:
        records_text_[rank] += text;
        return;
      case LineKind::end:
        lines_of(rank, LineKind::out).finish();
        lines_of(rank, LineKind::err).finish();
        failed_ |= text == "failed\n";
        ended_ += static_cast<int>(supervisors_.count(rank));
        end_starter();
    }
  }

  void note_supervisor(int rank, const std::string& text) {
    pid_t pid = 0;
    std::string host;
    if (std::istringstream(text) >> pid >> host && pid > 1 && host == host_name()) supervisors_[rank] = pid;
  }

  // After the first failure, mpirun and srun only tell in many words what the records of the ranks say.
  void take_words(std::string_view words) {
    constexpr std::size_t most_bytes = 8192;
    job_.starter_said.append(words.substr(0, most_bytes - std::min(most_bytes, job_.starter_said.size())));
    const bool ends = signal_ != 0 || is_aborting() || first_failure(rank_records());
    if (!ends) return err_.push(words);
    held_back_.append(words.substr(0, most_bytes - std::min(most_bytes, held_back_.size())));
  }

  // Whether a rank has announced that it calls MPI_Abort (launch_environment.h).
  bool is_aborting() const {
    std::error_code unreachable;
    return fs::exists(folder_.path() / "aborting", unreachable);
  }

  std::vector<RankRecord> rank_records() const {
    auto records = read_records(folder_.path());
    for (const auto& [rank, text] : records_text_)
      if (auto record = parse_rank_record(text); record && record->rank == rank)
        records.push_back(*std::move(record));
    std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    return records;
  }

  bool have_ended() {
    bool all = true;
    for (int rank = 0; auto& starter : starters_) {
      if (!starter.has_ended()) {
        all = false;
      } else if (const auto end = starter.end(); !has_failed(end_) && has_failed(end)) {
        end_ = end;
        if (own_) name_of_end_ = fmt::format("the supervisor of rank {}", rank);
        if (own_ && end.signal != 0 && !kills_)  // As mpirun says it.
          job_.starter_said += fmt::format("process rank {} exited on signal {}\n", rank, end.signal);
      }
      ++rank;
    }
    return all;
  }

  static bool has_failed(const ChildEnd& end) { return end.exit_code != 0 || end.signal != 0; }

  // What mpirun and srun do if a rank fails: the others are asked to end, and soon killed. Ranks that have
  // been asked before may be saving.
  void end_others() {
    if (!own_) return;
    if (has_failed(end_) && kill_ns_ == 0) {
      if (signal_ == 0) signal_ranks(SIGTERM);
      kill_ns_ = now_ns() + (signal_ == 0 ? 1 : 30) * ns_per_second;
    }
    if (kill_ns_ != 0 && now_ns() >= kill_ns_) kill_ranks();
  }

  // First only the programs, so that the supervisors can record their ends.
  void kill_ranks() {
    for (const auto& supervisor : starters_)
      if (!kills_)
        supervisor.signal(kill_signal);
      else
        supervisor.signal_group(SIGKILL);
    kills_ = true;
    kill_ns_ = now_ns() + 10 * ns_per_second;
  }

  void signal_starters(int number) const {
    for (const auto& starter : starters_) starter.signal(number);
  }

  // After a failure, mpirun sleeps twice for a second, also if no rank is left that it could wait for. Here
  // all ranks have written their records, and the folder of this launcher has all files of mpirun.
  void end_starter() {
    if (plan_.starter != Starter::mpirun || !failed_ || ended_ < plan_.ranks) return;
    signal_starters(SIGKILL);
    ended_starter_ = true;
  }

  // Open MPI 4.1 sometimes hangs in its own end after MPI_Abort, when no rank is left, and passes on no
  // output any more. A job would then last until its time limit.
  void end_hung_starter() {
    constexpr std::int64_t longest_end_ns = 10'000'000'000;
    if (plan_.starter != Starter::mpirun || ended_starter_) return;
    const auto now = now_ns();
    if (now - looked_for_end_ns_ < std::int64_t{look_ms} * 1'000'000) return;
    looked_for_end_ns_ = now;
    if (!is_aborting() || static_cast<int>(rank_records().size()) < plan_.ranks) return;
    if (all_ended_ns_ == 0) all_ended_ns_ = now;
    if (now - all_ended_ns_ < longest_end_ns) return;
    signal_starters(SIGKILL);
    ended_starter_ = true;
  }

  bool take_starter_err() {
    std::array<char, 65536> buffer;
    const auto got = starter_err_.get() < 0 ? 0 : ::read(starter_err_.get(), buffer.data(), buffer.size());
    if (got > 0) lines_.feed({buffer.data(), static_cast<std::size_t>(got)});
    if (got == 0) starter_err_.reset();
    return got > 0;
  }

  void take_typed() {
    std::array<char, 4096> buffer;
    const auto got = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got > 0) typed_.assign(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) to_starter_.reset();
  }

  void pass_typed() {
    const auto put = ::write(to_starter_.get(), typed_.data(), typed_.size());
    if (put > 0) typed_.erase(0, static_cast<std::size_t>(put));
    if (put >= 0 || errno == EINTR || errno == EAGAIN) return;
    typed_.clear();
    to_starter_.reset();
  }

  void take_signals() {
    signalfd_siginfo info;
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      take_signal(static_cast<int>(info.ssi_signo));
  }

  void take_signal(int number) {
    if (number == SIGCHLD) return;
    if (number == SIGTSTP) {
      signal_starters(SIGTSTP);
      ::raise(SIGSTOP);
      return;
    }
    const bool ends = number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
    // SIGUSR2 requests a trace. It does not explain why the job ended.
    const bool tells = number != SIGCONT && number != SIGUSR2;
    if (constexpr std::size_t most = 16; tells && job_.signals.size() < most)
      job_.signals.push_back({number, real_time_ns()});
    if (ends && ++endings_ == 1) signal_ = number;
    if (ends) go_on();
    told_to_save_ |= number == SIGUSR1 && have_ended();
    if (have_ended()) return;
    // Nobody waits for the ranks of a program that started this launcher for itself and is gone.
    const bool by_force = ends && (endings_ >= forced || is_abandoned());
    // mpirun passes this signal to the ranks of other hosts, but kills them after SIGTERM.
    const bool elsewhere = plan_.starter == Starter::mpirun && several_nodes();
    if (ends && endings_ == forced - 1)
      err_.push("farandole run: two signals have asked the ranks to end; a third one kills them\n");
    if (own_ && by_force) return kill_ranks();
    if (!ends || by_force || !signal_ranks(number))
      signal_starters(!ends ? number : elsewhere && !by_force ? SIGUSR1 : SIGTERM);
  }

  bool is_abandoned() const { return !folder_of_caller_.empty() && ::getppid() != parent_; }

  // mpirun kills its ranks one second after SIGTERM, and srun kills them at once. If the ranks get the signal
  // directly, they have time for a checkpoint.
  bool signal_ranks(int number) {
    if (plan_.starter == Starter::srun) return signal_step(number);
    if (own_) {
      signal_starters(number);
      return true;
    }
    // Supervisors may just have announced themselves.
    while (accepts_output() && take_starter_err()) {
    }
    if (static_cast<int>(supervisors_.size()) < plan_.ranks) return false;
    for (const auto& [rank, pid] : supervisors_) ::kill(pid, number);
    return true;
  }

  bool several_nodes() const {
    const auto nodes = job_.slurm.find("JOB_NUM_NODES");
    return nodes != job_.slurm.end() && nodes->second != "1";
  }

  bool signal_step(int number) {
    std::string step;
    if (!std::getline(std::ifstream(folder_.path() / "step"), step)) return false;
    try {
      const OwnedDescriptor nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));  // The step may have ended.
      scancel_.emplace(std::vector<std::string>{"scancel", fmt::format("--signal={}", number), step},
                       ChildStreams{-1, nothing.get(), nothing.get()}, SIGTERM);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  void keep_records(std::vector<RankRecord> records, const Outcome& outcome) {
    job_.exit_code = outcome.exit_code;
    job_.message = outcome.message;
    if (!ended_starter_ && !own_) job_.starter_signal = end_.signal;
    // Slurm forgets it some minutes after the end of the job, and not every reader can ask Slurm.
    if (outcome.exit_code != 0) ask_for_state(job_);
    job_.free_bytes = launch_folder_.free_bytes();
    job_.end_ns = real_time_ns();
    launch_folder_.end(job_, records);
  }

  // A profile, or a script that starts the program, may name the run directory.
  void learn_run(const std::vector<RankRecord>& records) {
    if (!run_.folder.empty()) return;
    for (const auto& rank : records) {
      std::error_code elsewhere;
      if (rank.run_dir.empty() || !fs::is_directory(rank.run_dir, elsewhere)) continue;
      run_ = {rank.run_dir, true};
      launch_folder_ = LaunchFolder(run_);
      return;
    }
  }

  // Copies recorder files of ranks on this node if their supervisors were killed with them.
  void bring_recorders() {
    if (run_.folder.empty()) return;
    for (const auto& problem : try_to_stage_out_all(run_.folder / "recorder", ".ftl"))
      err_.push(fmt::format("farandole run: recorder files may remain on this node: {}\n", problem));
    cut_recorders(run_.folder);  // of killed ranks
  }

  JobEnd conclude() {
    auto records = rank_records();
    if (const auto abort = read_abort(folder_.path() / "aborting")) add_abort(records, *abort, job_.launch);
    learn_run(records);
    const auto outcome =
        outcome_of(records, plan_.ranks, end_, name_of_end_, job_.starter_said, signal_, log_folder_);
    // A rank that calls MPI_Abort has said why.
    if (outcome.show_held_back && !is_aborting()) err_.push(held_back_);
    if (!outcome.message.empty()) err_.push("farandole run: " + outcome.message + "\n");
    if (!folder_of_caller_.empty() && !is_abandoned())
      write_call_end(folder_of_caller_,
                     call_end_of(records, read_records(folder_of_caller_), outcome, run_.folder));
    const bool recorded = launch_folder_.has_recorded();
    if (outcome.exit_code == 0 && trace_mpi_ && !recorded)
      err_.push(
          "farandole run: --trace-mpi has recorded nothing: the program did not call MPI from C or C++, or "
          "MPI is linked into it statically\n");
    if (outcome.exit_code == 0 && trace_torch_ && !recorded && folder_of_caller_.empty())
      err_.push(
          "farandole run: --trace-torch has recorded nothing: no rank's own process trained with torch in Python. "
          "Processes that a rank starts, as torchrun and multiprocessing do, are not recorded\n");
    write_some();
    bring_recorders();
    const bool complete = static_cast<int>(records.size()) >= plan_.ranks;
    keep_records(std::move(records), outcome);
    if (is_abandoned()) discard_folder(folder_of_caller_);
    drain();
    if (const auto lines = out_.lost(); lines > 0) {
      err_.push(
          fmt::format("farandole run: {} lines of output are lost, because stdout is on a full disk{}\n",
                      lines, where_else()));
      drain();
    }
    return {.exit_code = outcome.exit_code,
            .told = signal_ != 0,
            .run = run_.folder,
            .job_state = job_.job_state,
            .complete = complete,
            .lasted = std::chrono::nanoseconds(now_ns() - started_ns_),
            .told_to_save = told_to_save_,
            .recorded = recorded};
  }

  LaunchPlan plan_;
  const bool own_;  // This process itself starts the supervisors.
  bool trace_mpi_, trace_torch_;
  fs::path log_folder_;
  fs::path folder_of_caller_;
  const pid_t parent_ = ::getppid();
  LaunchedRun run_;
  LaunchFolder launch_folder_;
  JobRecord job_;
  SessionFolder folder_;
  OwnedDescriptor signals_;
  OwnedDescriptor starter_err_;
  OwnedDescriptor to_starter_;  // Only if stdin is a terminal.
  std::string typed_;           // Not yet written there.
  OutputQueue out_{STDOUT_FILENO}, err_{STDERR_FILENO};
  const std::string word_ = random_word();
  MarkedLines lines_{word_,
                     [this](int rank, LineKind kind, std::string_view text) { take_line(rank, kind, text); },
                     [this](std::string_view words) { take_words(words); }};
  std::map<std::pair<int, LineKind>, LineSplitter> ranks_lines_;
  std::map<int, std::string> records_text_;  // By rank: records for which no folder was available.
  std::string held_back_;                    // Words of mpirun or srun that the user has not seen.
  std::map<int, pid_t> supervisors_;         // By rank, on this host.
  int ended_ = 0;                            // The supervisors of this host that are about to exit.
  bool failed_ = false;                      // One of their ranks has failed by itself.
  bool ended_starter_ = false;
  bool told_to_save_ = false;
  int signal_ = 0;   // The first signal that ends the job; SIGPIPE: the reader of the output has ended.
  int endings_ = 0;  // The number of such signals.
  // So many of them kill the ranks. A second one must not disturb a checkpoint that the first one
  // has asked for.
  static constexpr int forced = 3;
  bool begun_ = false;  // job.json has been written.
  const std::int64_t started_ns_ = now_ns();
  std::int64_t looked_ns_ = started_ns_, looked_for_end_ns_ = started_ns_;
  std::int64_t all_ended_ns_ = 0;  // When the last rank had ended after MPI_Abort; 0: not seen.
  std::int64_t kill_ns_ = 0;       // When the ranks are killed, of which one has failed; 0: none has.
  bool kills_ = false;             // The programs have been killed.
  ChildEnd end_;                   // Of the first of starters_ that has failed.
  std::string name_of_end_ = job_.starter;
  std::optional<ChildProcess> scancel_;
  // srun, mpirun or, by rank, the supervisors. Last member: they must end before what they report to.
  std::deque<ChildProcess> starters_;
};

}  // namespace

JobEnd run_job(const LaunchRequest& request, const LaunchPlan& plan, const fs::path& log_folder,
               const LaunchedRun& run) {
  return Launcher(request, plan, log_folder, run).run();
}

}  // namespace farandole

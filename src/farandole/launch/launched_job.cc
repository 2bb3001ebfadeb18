#include "farandole/launch/launched_job.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/files/file_bytes.h"
#include "farandole/base/files/staging_file.h"
#include "farandole/base/files/temporary_folder.h"
#include "farandole/base/host.h"
#include "farandole/base/text/parse_number.h"
#include "farandole/launch/job_record.h"
#include "farandole/launch/output/chatter_filter.h"
#include "farandole/launch/output/line_splitter.h"
#include "farandole/launch/output/output_queue.h"
#include "farandole/launch/process/session_folder.h"
#include "farandole/launch/supervisor/supervisor.h"
#include "farandole/launch/verdict.h"

namespace farandole {
namespace {

namespace fs = std::filesystem;

fs::path own_program() {
  return fs::read_symlink("/proc/self/exe");
}

// The ranks of a Slurm job may run on other hosts; the only folder that they surely share is the log folder.
fs::path parent_of_temporary(const fs::path& log_folder) {
  if (in_slurm_job(&std::getenv) && !log_folder.empty()) return log_folder;
  return fs::temp_directory_path();
}

class Launcher {
 public:
  Launcher(const LaunchRequest& request, LaunchPlan plan, const fs::path& log_folder, LaunchedRun run)
      : plan_(std::move(plan)),
        trace_mpi_(request.trace_mpi),
        log_folder_(log_folder),
        folder_of_caller_(request.folder_of_caller),
        run_(std::move(run)),
        launch_folder_(run_),
        job_(record_start(plan_.ranks, plan_.command.front(), request.program)),
        folder_(parent_of_temporary(log_folder)),
        signals_(signal_descriptor(
            {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT})) {
    ::signal(SIGPIPE, SIG_IGN);
    const bool local = plan_.starter == Starter::mpirun;
    if (local && folder_.path().parent_path() != fs::temp_directory_path())
      socket_folder_.emplace(fs::temp_directory_path());
    if (local) socket_ = listen_as_launcher(socket_path());
    auto err = make_pipe();
    starter_err_ = std::move(err.read_end);
    ::fcntl(starter_err_.get(), F_SETFL, O_NONBLOCK);
    auto command = plan_.command;
    command.push_back(own_program());
    const auto supervisor = supervisor_options(request, local).to_arguments();
    command.insert(command.end(), supervisor.begin(), supervisor.end());
    auto environment = plan_.environment;
    if (local) {
      const auto session = session_environment(folder_.path(), &std::getenv);
      environment.insert(environment.end(), session.begin(), session.end());
    }
    begun_ = launch_folder_.begin(job_);
    Pipe input;
    if (::isatty(STDIN_FILENO) != 0) input = make_pipe();
    to_starter_ = std::move(input.write_end);
    ::fcntl(to_starter_.get(), F_SETFL, O_NONBLOCK);
    // srun and mpirun would end the ranks after Ctrl-C. This process tells the ranks instead, so that
    // they can save.
    starter_.emplace(command, ChildStreams{input.read_end.get(), -1, err.write_end.get()}, SIGTERM,
                     environment, std::vector<int>(), ChildGroup::own);
  }

  JobEnd run() {
    while (!starter_->has_ended()) serve(out_.full() || err_.full(), begun_ ? -1 : look_ms);
    while (take_datagram() || take_starter_err()) {
    }
    take_unread_output();
    starter_lines_.finish();
    err_.push(chatter_.flush());
    return conclude();
  }

 private:
  fs::path socket_path() const { return (socket_folder_ ? *socket_folder_ : folder_).path() / "launcher"; }

  SupervisorOptions supervisor_options(const LaunchRequest& request, bool local) const {
    SupervisorOptions options;
    options.world_size = plan_.ranks;
    options.folder = folder_.path();
    if (local) options.launcher_host = host_name();
    if (local) options.socket = socket_path();
    options.prefix = request.prefix;
    options.log_folder = log_folder_;
    options.run = run_;
    options.launch = job_.launch;
    options.threads = plan_.threads;
    options.trace_mpi = request.trace_mpi;
    options.program = request.program;
    return options;
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
    const bool may_read =
        to_starter_.get() >= 0 && typed_.empty() && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
    std::array<pollfd, 7> waiting = {{{signals_.get(), POLLIN, 0},
                                      {only_write ? -1 : socket_.get(), POLLIN, 0},
                                      {only_write ? -1 : starter_err_.get(), POLLIN, 0},
                                      {out_.empty() ? -1 : out_.descriptor(), POLLOUT, 0},
                                      {err_.empty() ? -1 : err_.descriptor(), POLLOUT, 0},
                                      {may_read ? STDIN_FILENO : -1, POLLIN, 0},
                                      {typed_.empty() ? -1 : to_starter_.get(), POLLOUT, 0}}};
    // After this time, a line of dashes belongs to the program and not to a message of mpirun.
    constexpr int hold_ms = 200;
    const int ready = ::poll(waiting.data(), waiting.size(), chatter_.holds() ? hold_ms : limit_ms);
    note_begin();
    if (ready == 0) err_.push(chatter_.flush());
    if (waiting[0].revents != 0) take_signals();
    if (waiting[1].revents != 0) take_datagram();
    if (waiting[2].revents != 0) take_starter_err();
    if (waiting[3].revents != 0) out_.write_some();
    if (waiting[4].revents != 0) err_.write_some();
    if (waiting[5].revents != 0) take_typed();
    if (waiting[6].revents != 0) pass_typed();
    if (out_.broken() || err_.broken()) end_without_reader();
    return ready > 0;
  }

  // A program of its own would get SIGPIPE. The ranks get SIGTERM, so that they can save.
  void end_without_reader() {
    if (signal_ != 0 || starter_->has_ended()) return;
    signal_ = SIGPIPE;
    job_.signals.push_back({SIGPIPE, real_time_ns()});
    err_.push("farandole run: the reader of the output has ended, so the ranks are asked to end\n");
    if (!signal_ranks(SIGTERM)) starter_->signal(SIGTERM);
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

  void take_unread_output() {
    for (int rank = 0; rank < plan_.ranks; ++rank)
      for (const auto& [stream, queue] :
           {std::pair(OutputStream::out, &out_), std::pair(OutputStream::err, &err_)})
        queue->push(read_whole_file(unread_output(folder_.path(), rank, stream)).value_or(""));
  }

  bool take_datagram() {
    std::array<char, SocketChannel::largest_datagram + 1> buffer;
    const auto got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 1) return false;
    const std::string_view text(buffer.data() + 1, static_cast<std::size_t>(got) - 1);
    if (buffer[0] == static_cast<char>(OutputStream::out)) out_.push(text);
    if (buffer[0] == static_cast<char>(OutputStream::err)) err_.push(text);
    if (buffer[0] == 's')
      if (const auto pid = parse_number<pid_t>(text); pid && *pid > 1) supervisors_.push_back(*pid);
    if (buffer[0] == 'x') {
      ++ended_;
      failed_ |= text == "f";
      end_starter();
    }
    return true;
  }

  // After a failure, mpirun sleeps twice for a second, also if no rank is left that it could wait for. Here
  // all ranks have written their records, and the folder of this launcher has all files of mpirun.
  void end_starter() {
    if (!failed_ || ended_ < plan_.ranks) return;
    starter_->signal(SIGKILL);
    ended_starter_ = true;
  }

  bool take_starter_err() {
    std::array<char, 65536> buffer;
    const auto got = starter_err_.get() < 0 ? 0 : ::read(starter_err_.get(), buffer.data(), buffer.size());
    if (got > 0) starter_lines_.feed({buffer.data(), static_cast<std::size_t>(got)});
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
      starter_->signal(SIGTSTP);
      ::raise(SIGSTOP);
      return;
    }
    const bool ends = number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
    // SIGUSR2 requests a trace. It does not explain why the job ended.
    const bool tells = number != SIGCONT && number != SIGUSR2;
    if (constexpr std::size_t most = 16; tells && job_.signals.size() < most)
      job_.signals.push_back({number, real_time_ns()});
    if (ends && ++endings_ == 1) signal_ = number;
    told_to_save_ |= number == SIGUSR1 && starter_->has_ended();
    if (starter_->has_ended()) return;
    // Nobody waits for the ranks of a program that started this launcher for itself and is gone.
    const bool by_force = ends && (endings_ >= forced || is_abandoned());
    // mpirun passes this signal to the ranks of other hosts, but kills them after SIGTERM.
    const bool elsewhere = plan_.starter == Starter::mpirun && several_nodes();
    if (ends && endings_ == forced - 1)
      err_.push("farandole run: two signals have asked the ranks to end; a third one kills them\n");
    if (!ends || by_force || !signal_ranks(number))
      starter_->signal(!ends ? number : elsewhere && !by_force ? SIGUSR1 : SIGTERM);
  }

  bool is_abandoned() const { return !folder_of_caller_.empty() && ::getppid() != parent_; }

  // mpirun kills its ranks one second after SIGTERM, and srun kills them at once. If the ranks get the signal
  // directly, they have time for a checkpoint.
  bool signal_ranks(int number) {
    if (plan_.starter == Starter::srun) return signal_step(number);
    // Supervisors may just have announced themselves.
    while (!out_.full() && !err_.full() && take_datagram()) {
    }
    if (static_cast<int>(supervisors_.size()) < plan_.ranks) return false;
    for (const pid_t pid : supervisors_) ::kill(pid, number);
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

  void keep_records(std::vector<RankRecord> records, const Verdict& verdict) {
    job_.exit_code = verdict.exit_code;
    job_.message = verdict.message;
    job_.starter_said = chatter_.left_out();
    if (!ended_starter_) job_.starter_signal = starter_->end().signal;
    // Slurm forgets it some minutes after the end of the job, and not every reader can ask Slurm.
    if (verdict.exit_code != 0) ask_for_state(job_);
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
  }

  JobEnd conclude() {
    auto records = read_records(folder_.path());
    records.insert(records.end(), chatter_.records().begin(), chatter_.records().end());
    learn_run(records);
    const auto verdict =
        judge(records, plan_.ranks, starter_->end(), plan_.command.front(), signal_, log_folder_);
    if (verdict.show_left_out) err_.push(chatter_.left_out());
    if (!verdict.message.empty()) err_.push("farandole run: " + verdict.message + "\n");
    if (verdict.exit_code == 0 && trace_mpi_ && !launch_folder_.has_recorded())
      err_.push(
          "farandole run: --trace-mpi has recorded nothing: the program did not call MPI from C or C++, or "
          "MPI is linked into it statically\n");
    write_some();
    bring_recorders();
    const bool complete = static_cast<int>(records.size()) >= plan_.ranks;
    keep_records(std::move(records), verdict);
    if (is_abandoned()) discard_folder(folder_of_caller_);
    drain();
    return {.exit_code = verdict.exit_code,
            .told = signal_ != 0,
            .run = run_.folder,
            .job_state = job_.job_state,
            .complete = complete,
            .lasted = std::chrono::nanoseconds(now_ns() - started_ns_),
            .told_to_save = told_to_save_};
  }

  LaunchPlan plan_;
  bool trace_mpi_;
  fs::path log_folder_;
  fs::path folder_of_caller_;
  const pid_t parent_ = ::getppid();
  LaunchedRun run_;
  LaunchFolder launch_folder_;
  JobRecord job_;
  SessionFolder folder_;
  std::optional<SessionFolder> socket_folder_;  // If folder_ may have a path that is too long for a socket.
  OwnedDescriptor signals_;
  OwnedDescriptor socket_;
  OwnedDescriptor starter_err_;
  OwnedDescriptor to_starter_;  // Only if stdin is a terminal.
  std::string typed_;           // Not yet written there.
  DescriptorChannel to_out_{STDOUT_FILENO}, to_err_{STDERR_FILENO};
  OutputQueue out_{to_out_}, err_{to_err_};
  ChatterFilter chatter_;
  LineSplitter starter_lines_{[this](std::string_view piece) { err_.push(chatter_.take(piece)); }};
  std::vector<pid_t> supervisors_;
  int ended_ = 0;        // The supervisors that are about to exit.
  bool failed_ = false;  // One of their ranks has failed by itself.
  bool ended_starter_ = false;
  bool told_to_save_ = false;
  int signal_ = 0;   // The first signal that ends the job; SIGPIPE: the reader of the output has ended.
  int endings_ = 0;  // The number of such signals.
  // So many of them kill the ranks. A second one must not disturb a checkpoint that the first one
  // has asked for.
  static constexpr int forced = 3;
  bool begun_ = false;  // job.json has been written.
  const std::int64_t started_ns_ = now_ns();
  std::int64_t looked_ns_ = started_ns_;
  std::optional<ChildProcess> scancel_;
  std::optional<ChildProcess> starter_;  // Last member: it must end before the objects to which it reports.
};

}  // namespace

JobEnd run_job(const LaunchRequest& request, const LaunchPlan& plan, const fs::path& log_folder,
               const LaunchedRun& run) {
  return Launcher(request, plan, log_folder, run).run();
}

}  // namespace farandole

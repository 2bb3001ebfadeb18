#include "farandole/launch/supervisor/supervisor.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include "farandole/base/files/temporary_folder.h"
#include "farandole/launch/output/marked_lines.h"
#include "farandole/launch/process/child_process.h"
#include "farandole/launch/records/rank_record.h"

namespace farandole {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// Runs supervise() in a separate process and reads its marked lines.
class Supervised {
 public:
  explicit Supervised(std::vector<std::string> program, bool prefix = false, bool log = false) {
    SupervisorOptions options{
        .rank = 3, .world_size = 1, .folder = folder.path(), .prefix = prefix, .word = "random"};
    if (log) options.log_folder = folder.path();
    options.program = std::move(program);
    auto pipe = make_pipe();
    pid = ::fork();
    if (pid == 0) {
      ::setpgid(0, 0);  // as mpirun does
      pipe.read_end.reset();
      ::dup2(pipe.write_end.get(), STDERR_FILENO);
      ::_exit(supervise(options));
    }
    stream_ = std::move(pipe.read_end);
  }
  ~Supervised() {
    if (pid > 0) ::kill(pid, SIGKILL);
    collect();
  }

  // Reads everything; returns the exit code.
  int finish() {
    while (read_some()) {
    }
    lines_.finish();
    return collect();
  }

  // Blocks until the program has written `text`.
  void await(const std::string& text) {
    while (out.find(text) == std::string::npos && read_some()) {
    }
  }

  void close() { stream_.reset(); }

  // The signal comes from a process that is not the supervisor's parent.
  void signal(int number) const {
    const ChildProcess sender({"kill", "-" + std::to_string(number), std::to_string(pid)}, {}, SIGKILL);
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(sender.pid()), &info, WEXITED | WNOWAIT);
  }

  RankRecord record() const {
    const auto records = read_records(folder.path());
    return records.empty() ? RankRecord{} : records.front();
  }
  std::string log() const {
    std::ostringstream text;
    text << std::ifstream(folder.path() / "rank-0003.log").rdbuf();
    return text.str();
  }

  const TemporaryFolder folder{std::filesystem::temp_directory_path()};
  pid_t pid = -1;
  std::string out, err, record_line, end, words;

 private:
  bool read_some() {
    char buffer[65536];
    const auto got = ::read(stream_.get(), buffer, sizeof buffer);
    if (got > 0) lines_.feed({buffer, static_cast<std::size_t>(got)});
    return got > 0;
  }

  void take(int rank, LineKind kind, std::string_view text) {
    EXPECT_EQ(rank, 3);
    if (kind == LineKind::out) out += text;
    if (kind == LineKind::err) err += text;
    if (kind == LineKind::record) record_line += text;
    if (kind == LineKind::end) end += text;
    if (kind == LineKind::start) {
      EXPECT_TRUE(text.starts_with(std::to_string(pid) + " ")) << text;
    }
  }

  int collect() {
    int status = 0;
    if (pid > 0) ::waitpid(pid, &status, 0);
    pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  OwnedDescriptor stream_;
  MarkedLines lines_{"random",
                     [this](int rank, LineKind kind, std::string_view text) { take(rank, kind, text); },
                     [this](std::string_view text) { words += text; }};
};

std::vector<std::string> shell(const std::string& script) {
  return {"bash", "-c", script};
}

TEST(Supervisor, PassesExitCodesOn) {
  for (const int code : {0, 1, 3, 70, 255}) {
    Supervised rank(shell("exit " + std::to_string(code)));
    EXPECT_EQ(rank.finish(), code);
    EXPECT_EQ(rank.record().exit_code, code);
    EXPECT_EQ(rank.record().rank, 3);
    EXPECT_EQ(rank.end, code == 0 ? "\n" : "failed\n");
    EXPECT_EQ(rank.words, "");
    EXPECT_FALSE(rank.record().told);
  }
}

TEST(Supervisor, ReportsSignals) {
  for (const int number : {SIGKILL, SIGSEGV, SIGTERM}) {
    Supervised rank(shell("kill -" + std::to_string(number) + " $$"));
    EXPECT_EQ(rank.finish(), 128 + number);
    EXPECT_EQ(rank.record().signal, number);
  }
}

TEST(Supervisor, KeepsStreamsApartAndTheLastLineAsItIs) {
  Supervised rank(shell("printf 'one\\ntwo'; printf 'bad\\nworse' >&2"));
  EXPECT_EQ(rank.finish(), 0);
  EXPECT_EQ(rank.out, "one\ntwo");
  EXPECT_EQ(rank.err, "bad\nworse");
}

TEST(Supervisor, PassesTenMegabytesAndTheTailOfADeadProgram) {
  Supervised rank(shell("head -c 10000000 /dev/zero | tr '\\0' x; seq 100000; kill -9 $$"));
  EXPECT_EQ(rank.finish(), 137);
  ASSERT_GT(rank.out.size(), 10'000'000u);
  EXPECT_EQ(rank.out.find_first_not_of('x'), 10'000'000u);
  EXPECT_TRUE(rank.out.ends_with("99999\n100000\n"));
}

TEST(Supervisor, PassesAnyBytesUnchanged) {
  const TemporaryFolder folder(std::filesystem::temp_directory_path());
  std::string garbage;
  for (unsigned i = 0, state = 1; i < 1'000'000; ++i) {
    state = state * 1664525u + 1013904223u;
    garbage += static_cast<char>(state >> 24);
  }
  std::ofstream(folder.path() / "garbage") << garbage;
  Supervised rank({"cat", folder.path() / "garbage"});
  EXPECT_EQ(rank.finish(), 0);
  EXPECT_TRUE(rank.out == garbage);
}

TEST(Supervisor, PassesProgressPromptly) {
  Supervised rank(shell("printf '10 %%\\r'; read -r < <(sleep 100)"));
  rank.await("10 %\r");  // hangs if it waits for a newline
  rank.signal(SIGTERM);
  EXPECT_EQ(rank.finish(), 143);
}

TEST(Supervisor, PrefixesAndLogsLines) {
  Supervised rank(shell("echo out; echo err >&2; printf '1 %%\\r2 %%\\r3 %%'; exit 5"), true, true);
  EXPECT_EQ(rank.finish(), 5);
  EXPECT_THAT(rank.err, MatchesRegex("\\[3 [0-9:.]+\\] err\n"));
  EXPECT_THAT(rank.out, HasSubstr("] out\n"));
  EXPECT_THAT(rank.out, HasSubstr("] 3 %\n"));
  EXPECT_THAT(rank.log(), HasSubstr("rank 3 of 1 on "));
  EXPECT_THAT(rank.log(), HasSubstr("] out\n"));
  EXPECT_THAT(rank.log(), HasSubstr("] err\n"));
  EXPECT_THAT(rank.log(), HasSubstr("] 3 %\n"));
  EXPECT_THAT(rank.log(), testing::Not(HasSubstr("2 %\n"))) << "the log keeps a bar's last state only";
  EXPECT_THAT(rank.log(), HasSubstr("--- exit code 5\n"));
}

TEST(Supervisor, PassesSignalsOn) {
  Supervised rank(
      shell("trap 'echo usr1' USR1; trap 'echo term; exit 75' TERM; echo ready; while :; do read -r -t 1 < "
            "<(sleep 9); done"));
  rank.await("ready\n");
  rank.signal(SIGUSR1);
  rank.await("usr1\n");
  EXPECT_EQ(rank.out, "ready\nusr1\n");
  rank.signal(SIGTERM);
  EXPECT_EQ(rank.finish(), 75);
  EXPECT_TRUE(rank.record().told);
}

TEST(Supervisor, RecordsTheAbortOfItsRankAndNotTheSignalThatFollows) {
  for (const int aborting : {3, 2}) {
    Supervised rank(shell(R"(echo ready; sleep 600)"));
    rank.await("ready\n");
    announce_abort(rank.folder / "aborting", {aborting, 5, 1, "node1"});
    announce_abort(rank.folder / "aborting", {3, 6, 2, "node1"});  // comes too late
    rank.signal(SIGTERM);
    rank.finish();
    EXPECT_EQ(rank.record().exit_code, aborting == 3 ? 5 : 0);
    EXPECT_EQ(rank.record().signal, aborting == 3 ? 0 : SIGTERM);
    EXPECT_EQ(rank.record().told, aborting != 3);
  }
}

TEST(Supervisor, LeavesItsParentsSignalsToTheProcessGroup) {
  Supervised rank(shell("trap 'echo term' TERM; echo ready; while :; do sleep 0.1; done"));
  rank.await("ready\n");
  ::kill(rank.pid, SIGTERM);  // from its parent: the program is taken to have got it, too
  rank.signal(SIGKILL);       // with its supervisor the program ends
  EXPECT_EQ(rank.finish(), -SIGKILL);
  EXPECT_EQ(rank.out, "ready\n");
}

TEST(Supervisor, WaitsForAProgramThatIgnoresSigterm) {
  Supervised rank(
      shell("trap '' TERM; trap 'echo end; exit 0' USR1; echo ready; while :; do sleep 0.1; done"));
  rank.await("ready\n");
  rank.signal(SIGTERM);
  rank.signal(SIGUSR1);
  EXPECT_EQ(rank.finish(), 0);
  EXPECT_EQ(rank.out, "ready\nend\n");
}

TEST(Supervisor, EndsWhatTheProgramLeftRunning) {
  Supervised rank(shell("sleep 1000 & echo $!; (sleep 1000 & echo $!); exit 4"));
  EXPECT_EQ(rank.finish(), 4);  // the sleeps hold the pipes: waiting for their end would hang
  std::istringstream pids(rank.out);
  int seen = 0;
  for (pid_t pid; pids >> pid; ++seen) EXPECT_EQ(::kill(pid, 0), -1) << pid;
  EXPECT_EQ(seen, 2);
}

// A process becomes a child of the supervisor only after its parent was killed.
TEST(Supervisor, EndsOrphansOfOrphans) {
  Supervised rank(shell(
      "exec 3< <(bash -c 'bash -c \"sleep 1000 & echo \\$! \\$\\$; exec sleep 1000\" & exec sleep 1000'); "
      "read -r pids <&3; echo $pids; exit 4"));
  EXPECT_EQ(rank.finish(), 4);
  std::istringstream pids(rank.out);
  int seen = 0;
  for (pid_t pid; pids >> pid; ++seen) EXPECT_EQ(::kill(pid, 0), -1) << pid;
  EXPECT_EQ(seen, 2);
}

// `script` prints the id of a process that it leaves running, and "ready".
void expect_that_sigterm_ends_what_is_left(const std::string& script) {
  Supervised rank(shell(script));
  rank.await("ready\n");
  rank.signal(SIGTERM);
  EXPECT_EQ(rank.finish(), 143);
  EXPECT_EQ(::kill(std::stoi(rank.out), 0), -1);
}

TEST(Supervisor, DoesNotWaitForADaemonAfterSigterm) {
  expect_that_sigterm_ends_what_is_left("setsid sh -c 'echo $$; echo ready; exec sleep 1000' & wait");
}

TEST(Supervisor, LetsACommandFinishWhoseScriptDiedOfSigterm) {
  Supervised rank(
      shell("bash -c 'trap \"echo saved; exit\" TERM; echo ready; while :; do sleep 0.1; done'; true"));
  rank.await("ready\n");
  rank.signal(SIGTERM);
  EXPECT_EQ(rank.finish(), 143);
  EXPECT_EQ(rank.out, "ready\nsaved\n");
}

// Otherwise it would hold the job until a third signal.
TEST(Supervisor, EndsACommandThatIgnoresSigterm) {
  expect_that_sigterm_ends_what_is_left(
      "sh -c 'trap \"\" TERM; : & echo $$; echo ready; exec sleep 9999' & wait");
}

TEST(Supervisor, SaysWhatCannotBeStarted) {
  Supervised rank({"/proc/nonexistent/program"});
  EXPECT_EQ(rank.finish(), 64);
  EXPECT_THAT(rank.err, HasSubstr("/proc/nonexistent/program: No such file"));
  EXPECT_EQ(rank.record().exit_code, 64);
}

TEST(Supervisor, SendsItsRecordIfItsFolderIsGone) {
  Supervised rank(shell("trap 'exit 6' USR1; echo ready; while :; do sleep 0.05; done"));
  rank.await("ready\n");
  std::filesystem::remove_all(rank.folder.path());
  rank.signal(SIGUSR1);
  EXPECT_EQ(rank.finish(), 6);
  const auto record = parse_rank_record(rank.record_line);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->exit_code, 6);
}

TEST(Supervisor, AReaderThatLeavesDoesNotStopTheProgram) {
  Supervised rank(shell("echo ready; trap '' PIPE; seq 300000; exit 8"));
  rank.await("ready\n");
  rank.close();
  EXPECT_EQ(rank.finish(), 8);
}

TEST(SupervisorOptions, ComeBackFromArguments) {
  SupervisorOptions options{.world_size = 128,
                            .folder = "/tmp/a folder=b",
                            .mpirun = true,
                            .own = true,
                            .prefix = true,
                            .log_folder = "/tmp/lo\ngs\xff"};
  options.run = {"/work/--", true};
  options.launch = "1-2-3";
  options.word = "0123456789abcdef";
  options.threads = 7;
  options.trace_mpi = true;
  options.trace_torch = true;
  options.torch_backend = true;
  options.horovod = true;
  options.program = {"--supervise", "", "--", "a=b"};
  SupervisorOptions few{.folder = "/x"};
  few.program = {"true"};
  for (const auto& given : {options, few}) {
    const auto back = SupervisorOptions::parse(given.to_arguments());
    ASSERT_TRUE(back);
    EXPECT_EQ(back->world_size, given.world_size);
    EXPECT_EQ(back->folder, given.folder);
    EXPECT_EQ(back->mpirun, given.mpirun);
    EXPECT_EQ(back->own, given.own);
    EXPECT_EQ(back->prefix, given.prefix);
    EXPECT_EQ(back->log_folder, given.log_folder);
    EXPECT_EQ(back->run.folder, given.run.folder);
    EXPECT_EQ(back->run.logged, given.run.logged);
    EXPECT_EQ(back->launch, given.launch);
    EXPECT_EQ(back->word, given.word);
    EXPECT_EQ(back->threads, given.threads);
    EXPECT_EQ(back->trace_mpi, given.trace_mpi);
    EXPECT_EQ(back->trace_torch, given.trace_torch);
    EXPECT_EQ(back->torch_backend, given.torch_backend);
    EXPECT_EQ(back->horovod, given.horovod);
    EXPECT_EQ(back->program, given.program);
  }
}

TEST(SupervisorOptions, NothingElseIsTaken) {
  using Words = std::vector<std::string>;
  for (const auto& words : {Words{}, Words{"--supervise"}, Words{"--supervise", "--"},
                            Words{"--supervise", "true"}, Words{"--supervise", "--colour=red", "--", "true"},
                            Words{"--ranks=2", "--", "true"}, Words{"--supervise", "--prefix", "--", "true"}})
    EXPECT_FALSE(SupervisorOptions::parse(words));
}

}  // namespace
}  // namespace farandole

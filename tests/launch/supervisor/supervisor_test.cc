#include "farandole/launch/supervisor/supervisor.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "farandole/base/files/temporary_folder.h"
#include "farandole/launch/process/child_process.h"
#include "farandole/launch/supervisor/rank_record.h"

namespace farandole {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// Runs supervise() in a separate process and reads its two streams.
class Supervised {
 public:
  explicit Supervised(std::vector<std::string> program, bool prefix = false, bool log = false) {
    SupervisorOptions options;
    options.rank = 3;
    options.world_size = 1;
    options.folder = folder.path();
    options.prefix = prefix;
    if (log) options.log_folder = folder.path();
    options.program = std::move(program);
    auto to_out = make_pipe(), to_err = make_pipe();
    pid = ::fork();
    if (pid == 0) {
      ::setpgid(0, 0);  // as mpirun does
      to_out.read_end.reset();
      to_err.read_end.reset();
      ::dup2(to_out.write_end.get(), STDOUT_FILENO);
      ::dup2(to_err.write_end.get(), STDERR_FILENO);
      ::_exit(supervise(options));
    }
    out_ = std::move(to_out.read_end);
    err_ = std::move(to_err.read_end);
  }
  ~Supervised() {
    if (pid > 0) ::kill(pid, SIGKILL);
    collect();
  }

  // Reads both streams to their ends; returns the exit code.
  int finish() {
    pollfd streams[] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
    std::string* const texts[] = {&out, &err};
    while (streams[0].fd >= 0 || streams[1].fd >= 0) {
      ::poll(streams, 2, -1);
      for (int i = 0; i < 2; ++i) {
        char buffer[65536];
        if (streams[i].revents == 0) continue;
        const auto got = ::read(streams[i].fd, buffer, sizeof buffer);
        if (got > 0) texts[i]->append(buffer, static_cast<std::size_t>(got));
        if (got <= 0) streams[i].fd = -1;
      }
    }
    return collect();
  }

  // Blocks until the program has written `text`.
  void await(const std::string& text) {
    char byte;
    while (out.find(text) == std::string::npos && ::read(out_.get(), &byte, 1) == 1) out += byte;
  }

  void close_out() { out_.reset(); }

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
  std::string out, err;

 private:
  int collect() {
    int status = 0;
    if (pid > 0) ::waitpid(pid, &status, 0);
    pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  OwnedDescriptor out_, err_;
};

class Fifo {
 public:
  Fifo() { EXPECT_EQ(::mkfifo(path().c_str(), 0600), 0); }
  std::string path() const { return folder_ / "fifo"; }
  // Blocks until a process writes.
  void await() const { std::ifstream(path()).get(); }

 private:
  const TemporaryFolder folder_;
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

TEST(Supervisor, LogsEverythingAlthoughTheReaderStalls) {
  const Fifo done;
  Supervised rank(shell("seq 400000; echo >" + done.path() + "; exit 5"), false, true);
  done.await();
  EXPECT_EQ(rank.finish(), 5);
  EXPECT_THAT(rank.log(), HasSubstr("] 400000\n"));
  EXPECT_TRUE(rank.out.starts_with("1\n2\n3\n"));
  EXPECT_THAT(rank.out,
              HasSubstr(" lines are left out here, because the output was not read; the rank's log"));
}

TEST(Supervisor, LetsAProgramStopAlthoughTheReaderStalls) {
  const Fifo done;
  Supervised rank(shell("trap 'seq 400000; echo >" + done.path() +
                        "; exit 75' TERM; echo ready; while :; do read -r -t 1 < <(sleep 9); done"));
  rank.await("ready\n");
  rank.signal(SIGTERM);
  done.await();
  EXPECT_EQ(rank.finish(), 75);
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
  Supervised rank({"/nonexistent/program"});
  EXPECT_EQ(rank.finish(), 64);
  EXPECT_THAT(rank.err, HasSubstr("/nonexistent/program: No such file"));
  EXPECT_EQ(rank.record().exit_code, 64);
}

TEST(Supervisor, ReportsOnStderrWhereItsFolderIsGone) {
  Supervised rank(shell("trap 'exit 6' USR1; echo ready; while :; do sleep 0.05; done"));
  rank.await("ready\n");
  std::filesystem::remove_all(rank.folder.path());
  rank.signal(SIGUSR1);
  EXPECT_EQ(rank.finish(), 6);
  const auto record = from_marked_line(rank.err);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->exit_code, 6);
}

TEST(Supervisor, AReaderThatLeavesDoesNotStopTheProgram) {
  Supervised rank(shell("echo ready; trap '' PIPE; seq 300000; exit 8"));
  rank.await("ready\n");
  rank.close_out();
  EXPECT_EQ(rank.finish(), 8);
}

}  // namespace
}  // namespace farandole

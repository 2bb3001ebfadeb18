#include "farandole/launch/process/child_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "farandole/base/error.h"

namespace farandole {
namespace {

// Runs between fork and exec. It reports an error to the parent as an errno through `failure`.
[[noreturn]] void become(char* const* arguments, const ChildStreams& streams, int signal_at_parent_end,
                         pid_t parent, int failure, ChildGroup group) {
  const int wanted[] = {streams.in, streams.out, streams.err};
  for (int target = 0; target < 3; ++target)
    if (wanted[target] >= 0) ::dup2(wanted[target], target);
  // A launcher or supervisor changes only the handling of these.
  for (const int number : {SIGPIPE, SIGXFSZ}) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  if (group != ChildGroup::of_supervisor) ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::prctl(PR_SET_PDEATHSIG, signal_at_parent_end);
  if (::getppid() != parent) ::_exit(128 + SIGKILL);  // The parent ended before the call of prctl.
  ::execvp(arguments[0], arguments);
  const int error = errno;
  [[maybe_unused]] const auto ignored = ::write(failure, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const ChildStreams& streams,
                           int signal_at_parent_end, const EnvironmentChanges& environment,
                           const std::vector<int>& ignored, ChildGroup group) {
  std::vector<char*> pointers;
  for (const auto& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  Pipe failure = make_pipe();
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw system_error("fork for", arguments.front());
  if (pid_ == 0) {
    for (const auto& [name, value] : environment) {
      if (value) ::setenv(name.c_str(), value->c_str(), 1);
      if (!value) ::unsetenv(name.c_str());
    }
    if (group != ChildGroup::of_parent) ::setpgid(0, 0);
    for (const int number : ignored) ::signal(number, SIG_IGN);
    become(pointers.data(), streams, signal_at_parent_end, parent, failure.write_end.get(), group);
  }
  failure.write_end.reset();
  int error = 0;
  ssize_t got;
  do got = ::read(failure.read_end.get(), &error, sizeof error);
  while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof error)) {
    collect(0);
    throw UserError("cannot start " + arguments.front() + ": " + std::strerror(error));
  }
}

ChildProcess::~ChildProcess() {
  if (ended_) return;
  signal(SIGKILL);
  collect(0);
}

void ChildProcess::signal(int number) const {
  if (!ended_) ::kill(pid_, number);
}

void ChildProcess::signal_group(int number) const {
  if (!ended_) ::kill(-pid_, number);
}

bool ChildProcess::has_ended() {
  if (!ended_) collect(WNOHANG);
  return ended_;
}

void ChildProcess::collect(int options) {
  int status = 0;
  pid_t got;
  rusage used{};
  do got = ::wait4(pid_, &status, options, &used);
  while (got < 0 && errno == EINTR);
  if (got != pid_) return;
  ended_ = true;
  end_ = WIFSIGNALED(status) ? ChildEnd{0, WTERMSIG(status)} : ChildEnd{WEXITSTATUS(status), 0};
  end_.peak_memory_bytes = std::int64_t{used.ru_maxrss} * 1024;
}

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw system_error("pipe", "");
  return {OwnedDescriptor(ends[0]), OwnedDescriptor(ends[1])};
}

OwnedDescriptor signal_descriptor(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    // nohup and shells ignore these signals for good. A batch script ignores others only until
    // this program starts.
    const bool may_be_ignored = number == SIGHUP || number == SIGINT || number == SIGQUIT;
    if (!may_be_ignored || now.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  OwnedDescriptor descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (descriptor.get() < 0) throw system_error("signalfd", "");
  return descriptor;
}

std::optional<CommandEnd> run_command(const std::vector<std::string>& command,
                                      std::chrono::milliseconds patience) try {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t most = 1 << 20;
  const auto deadline = Clock::now() + patience;
  const OwnedDescriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe pipe = make_pipe();
  ChildProcess child(command, {nothing.get(), pipe.write_end.get(), pipe.write_end.get()}, SIGKILL);
  pipe.write_end.reset();
  std::string text;
  for (bool open = true; open || !child.has_ended();) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return std::nullopt;
    // A program that has closed its output usually ends soon, but no event reports its end.
    pollfd waiting{open ? pipe.read_end.get() : -1, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(open ? left : std::min<std::int64_t>(left, 5))) <= 0) continue;
    std::array<char, 4096> buffer;
    const auto got = ::read(pipe.read_end.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    open = got > 0;
    if (open) text.append(buffer.data(), std::min(static_cast<std::size_t>(got), most - text.size()));
  }
  if (child.end().signal != 0) return std::nullopt;
  return CommandEnd{child.end().exit_code, text};
} catch (const Error&) {
  return std::nullopt;
}

std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds patience) {
  auto end = run_command(command, patience);
  if (!end || end->exit_code != 0) return std::nullopt;
  return std::move(end->text);
}

}  // namespace farandole

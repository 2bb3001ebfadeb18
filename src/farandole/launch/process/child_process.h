// A child process with its own standard streams, which does not outlive the object that started it; and what
// a program prints.
// Thread safety: none; use from one thread at a time. Any thread may call the functions at any time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "farandole/base/files/file_bytes.h"

namespace farandole {

struct ChildStreams {
  int in = -1, out = -1, err = -1;  // Descriptors that become 0, 1 and 2 of the child; -1: inherited.
};

// Variables to set. A variable without a value is removed.
using EnvironmentChanges = std::vector<std::pair<std::string, std::optional<std::string>>>;

struct ChildEnd {
  int exit_code = 0;
  int signal = 0;  // Signal that killed the child; 0: it exited.
  // Resident memory of the child, or of its largest child for which it waited.
  std::int64_t peak_memory_bytes = 0;
};

// A process group of its own gets no signals from the terminal (Ctrl-C, Ctrl-Z). Signals that this process
// blocks stay blocked for a supervisor, so that none is lost before it can take them.
enum class ChildGroup { of_parent, own, of_supervisor };

// When the thread that started the child ends for any reason, the child gets `signal_at_parent_end`. The
// child starts with default signal handlers and, unless it is a supervisor, an empty signal mask. The
// destructor kills a running child and waits for it.
class ChildProcess {
 public:
  // `environment`: changes to the environment of this process. `ignored`: signals that the child ignores
  // until it sets its own handlers.
  // Throws: UserError if `arguments[0]` cannot be executed; Error if the system has no resources for it.
  ChildProcess(const std::vector<std::string>& arguments, const ChildStreams& streams,
               int signal_at_parent_end, const EnvironmentChanges& environment = {},
               const std::vector<int>& ignored = {}, ChildGroup group = ChildGroup::of_parent);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  void signal_group(int number) const;  // Of a child with a process group of its own.
  // Returns whether the child has ended. Afterwards end() says how.
  bool has_ended();
  ChildEnd end() const { return end_; }

 private:
  void collect(int options);

  pid_t pid_ = -1;
  bool ended_ = false;
  ChildEnd end_;
};

struct Pipe {
  OwnedDescriptor read_end, write_end;  // close-on-exec
};
Pipe make_pipe();

// Returns a signalfd for `signals`. From then on these signals are blocked in this thread. Children start
// with an empty mask. SIGHUP, SIGINT and SIGQUIT stay ignored if the starter of this process ignores them.
OwnedDescriptor signal_descriptor(const std::vector<int>& signals);

struct CommandEnd {
  int exit_code = 0;
  std::string text;  // Standard output and error, limited to 1 MiB.
};

// Runs a program that gets no input. Returns nullopt if the program cannot be started, is killed by a signal,
// or runs longer than `patience`; in the last case it is killed.
std::optional<CommandEnd> run_command(const std::vector<std::string>& command,
                                      std::chrono::milliseconds patience);

// Returns the text of run_command(). Returns nullopt also if the program fails.
std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds patience);

}  // namespace farandole

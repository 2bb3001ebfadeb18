// A child process with its own standard streams. It does not outlive the object that started it.
// Thread safety: none; use from one thread at a time.
#pragma once

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

// A process group of its own gets no signals from the terminal (Ctrl-C, Ctrl-Z).
enum class ChildGroup { of_parent, own };

// When the thread that started the child ends for any reason, the child gets `signal_at_parent_end`. The
// child starts with default signal handlers and an empty signal mask. The destructor kills a running child
// and waits for it.
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

}  // namespace farandole

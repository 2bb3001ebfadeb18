// A child process: started with its own standard streams, ended with this one. One thread owns it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "farandole/base/owned_descriptor.h"

namespace farandole {

struct ChildStreams {
  int in = -1, out = -1, err = -1;  // descriptors to become 0, 1, 2 of the child; -1: inherited
};

// Variables to set, or, without a value, to remove.
using EnvironmentChanges = std::vector<std::pair<std::string, std::optional<std::string>>>;

// How a child ended.
struct ChildEnd {
  int exit_code = 0;
  int signal = 0;                      // that killed it; 0: it exited
  std::int64_t peak_memory_bytes = 0;  // resident, of it or the largest child that it waited for
};

// The child gets `signal_at_parent_end` when the thread that started it ends, whatever ends it; default
// signal handlers and an empty signal mask. Destroying a ChildProcess that still runs kills it and waits.
class ChildProcess {
 public:
  // Throws UserError where `arguments[0]` cannot be executed, Error where the system has no room for it.
  // `environment`: changes to this process' own. `ignored`: signals that the child ignores until it asks for
  // them.
  ChildProcess(const std::vector<std::string>& arguments, const ChildStreams& streams,
               int signal_at_parent_end, const EnvironmentChanges& environment = {},
               const std::vector<int>& ignored = {});
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Whether it has ended; after that, end() says how.
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

// A signalfd for `signals`, which are blocked in this thread from then on (children start with an empty
// mask).
OwnedDescriptor signal_descriptor(const std::vector<int>& signals);

}  // namespace farandole

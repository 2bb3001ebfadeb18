// Processes of this host: their state, from /proc, and whether the other ranks of this node are alive.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "farandole/base/files/file_bytes.h"

namespace farandole {

// The state of a process or thread.
struct ProcessState {
  // R running, S sleeping, D in the kernel, T stopped, t traced, Z ended but not waited for.
  char state = '?';
  std::int64_t parent = 0;         // process id
  std::int64_t started_ticks = 0;  // since the host has booted; a later process with the same id has another
  int wait_status = 0;             // for Z: the status that waitpid() would return
};

// std::nullopt if there is no such process or /proc hides it.
std::optional<ProcessState> read_process_state(std::int64_t pid);

// Its state; 0 if it has ended, or has only the id of the process that was seen at `known_ns`.
// Units: nanoseconds of CLOCK_REALTIME.
char state_of_process(std::int64_t pid, std::int64_t known_ns);

// False if there is no such process.
bool ignores_signal(std::int64_t pid, int number);

// The children of a process. Those that a thread other than the first one has started are left out.
std::vector<std::int64_t> children_of(std::int64_t pid);
// These, their children, and so on.
std::vector<std::int64_t> descendants_of(std::int64_t pid);

// Process ids are comparable only within one of these; 0 if it is unknown.
std::uint64_t own_pid_namespace();

struct LostPeer {
  int rank = 0;  // rank in the job
  pid_t pid = 0;
  std::string cause;  // "killed by SIGKILL", "ended with exit code 3", or "ended" if the cause is unknown
};

// Holds a pidfd of every peer, so that zombies and reused process ids are recognized.
class PeerWatch {
 public:
  struct Peer {
    int rank = 0;
    pid_t pid = 0;
    std::uint64_t pid_namespace = 0;  // own_pid_namespace() of that rank; 0 means this process's namespace
  };

  // Peers that have already ended and been waited for, or that are in another PID namespace, are not watched.
  // If the kernel has no pidfd_open (Linux before 5.3), no peer is watched.
  explicit PeerWatch(std::span<const Peer> peers);
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // The lowest rank that was killed, or else the lowest rank that has ended; std::nullopt if all are alive.
  // This makes a system call, so call it only during long waits.
  std::optional<LostPeer> lost() const;
  std::vector<LostPeer> all_lost() const;  // killed ranks first, then by rank
  // One descriptor per watched peer. It becomes readable (POLLIN) when the peer ends.
  std::vector<int> descriptors() const;

 private:
  struct Watched {
    Peer peer;
    OwnedDescriptor pidfd;
  };
  std::vector<Watched> watched_;  // by rank
};

// "killed by SIGKILL" or "ended with exit code 3", from a status of waitpid().
std::string describe_end(int wait_status);

}  // namespace farandole

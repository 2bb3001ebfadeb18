// Whether the other ranks of this node still live. Usable from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "farandole/base/owned_descriptor.h"

namespace farandole {

struct LostPeer {
  int rank = 0;  // in the job
  pid_t pid = 0;
  std::string cause;  // "killed by SIGKILL", "ended with exit code 3", or "ended" where nobody knows
};

// Holds a pidfd of every peer, so that neither a zombie nor a reused process id deceives it.
class PeerWatch {
 public:
  struct Peer {
    int rank = 0;
    pid_t pid = 0;
    std::uint64_t pid_namespace = 0;  // as own_pid_namespace() gives it on that rank; 0: that of this process
  };
  static std::uint64_t own_pid_namespace();

  // Peers that have ended and been waited for already, or that live in another PID namespace, are not
  // watched; nor is anybody where the kernel has no pidfd_open (Linux before 5.3).
  explicit PeerWatch(std::span<const Peer> peers);
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // The lowest of the ranks that were killed, else of those that have ended, if any. A system call: for waits
  // that last, not for each.
  std::optional<LostPeer> lost() const;
  std::vector<LostPeer> all_lost() const;  // those that were killed first, then by rank
  // One a watched peer, to poll for POLLIN: readable from the moment it ends.
  std::vector<int> descriptors() const;

 private:
  struct Watched {
    Peer peer;
    OwnedDescriptor pidfd;
  };
  std::vector<Watched> watched_;  // by rank
};

}  // namespace farandole

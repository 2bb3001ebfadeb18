// Whether the other ranks of this node still live. Usable from any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

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
  };
  // Peers that have ended already, or that live in another PID namespace, are not watched.
  explicit PeerWatch(std::span<const Peer> peers);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // The lowest rank of those that have ended, if any. A system call: for waits that last, not for each.
  std::optional<LostPeer> lost() const;

 private:
  struct Watched {
    Peer peer;
    int pidfd = -1;
  };
  std::vector<Watched> watched_;
};

}  // namespace farandole

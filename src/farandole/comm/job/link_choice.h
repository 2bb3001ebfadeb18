// Chooses by measurement how the nodes of a job exchange data.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <memory>
#include <mpi.h>
#include <string>
#include <vector>

#include "farandole/comm/mpi/mpi_communicator.h"
#include "farandole/comm/net/leader_group.h"
#include "farandole/comm/shm/node_barrier.h"

namespace farandole {

enum class LinkKind { tcp, mpi };

struct LinkChoice {
  LinkKind kind = LinkKind::tcp;
  std::size_t window = 1;           // see LeaderGroup::set_window()
  bool compared = false;            // with MPI's own collectives
  bool collectives_of_mpi = false;  // MPI's own collectives are faster than those over links
  std::string reason = {};          // for the user: "TCP between nodes, 128 KiB at once (…)"
};

// Links of a leader group of this kind.
// Throws: Error on all ranks if TCP connections cannot be made.
// Collective: every rank of `leaders` must call this.
std::vector<std::unique_ptr<Link>> make_links(LinkKind kind, MPI_Comm leaders, MpiCommunicator& group);

// Times reductions of a small and of a large message over `kinds`, with several windows. Takes about 0.1 s;
// slow networks try fewer windows. The result is the same on all ranks. Kinds that cannot be used are
// skipped; `problem` then receives the reason.
// Use new links afterwards. While large windows are tried, TCP makes the buffers of its sockets so large that
// later messages leave the caches, which makes reductions of 128 KiB to 2 MiB two to three times as slow.
// Throws: Error on all ranks if no kind can be used.
// Collective: every rank of `leaders` must call this.
LinkChoice choose_links(const std::vector<LinkKind>& kinds, MPI_Comm leaders, MpiCommunicator& group,
                        Patience patience, std::string& problem);

// Times allreduces of `links`, whose ranks spin before they sleep, and of MPI, for at most 0.1 s, and
// adds to `choice` which of the two is faster. Both communicators have the same ranks, and all ranks get
// the same result.
// Collective: every rank of the group must call this.
void compare_with_mpi(Communicator& links, MpiCommunicator& mpi, LinkChoice& choice);

}  // namespace farandole

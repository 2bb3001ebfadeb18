// Chooses by measurement how the nodes of a job exchange data.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstddef>
#include <memory>
#include <mpi.h>
#include <optional>
#include <string>
#include <vector>

#include "farandole/comm/mpi/mpi_communicator.h"
#include "farandole/comm/net/leader_group.h"
#include "farandole/comm/shm/node_barrier.h"

namespace farandole {

enum class LinkKind { tcp, mpi };

struct LinkChoice {
  LinkKind kind = LinkKind::tcp;
  std::size_t window = 1;  // see LeaderGroup::set_window()
  std::string reason;      // "TCP, 128 KiB at once: 9 µs for 64 B, 430 µs for 1 MiB; MPI: 11 µs, 790 µs"
};

// Links of a leader group of this kind.
// Throws: Error on all ranks if TCP connections cannot be made.
// Collective: every rank of `leaders` must call this.
std::vector<std::unique_ptr<Link>> make_links(LinkKind kind, MPI_Comm leaders, MpiCommunicator& group);

// Times reductions of a small and of a large message over `kinds`, with several windows. Takes about 0.1 s;
// slow networks try fewer windows. The result is the same on all ranks. Kinds that cannot be used are
// skipped; `problem` then receives the reason.
// Throws: Error on all ranks if no kind can be used.
// Collective: every rank of `leaders` must call this.
LinkChoice choose_links(const std::vector<LinkKind>& kinds, MPI_Comm leaders, MpiCommunicator& group,
                        Patience patience, std::string& problem);

}  // namespace farandole

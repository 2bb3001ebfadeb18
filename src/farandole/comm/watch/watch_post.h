// The means by which a rank watches the others: shared memory and process descriptors on its own node,
// messages for other nodes.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <memory>
#include <mpi.h>
#include <optional>
#include <vector>

#include "farandole/base/process/process_state.h"
#include "farandole/comm/rank_layout.h"
#include "farandole/comm/watch/status_board.h"

namespace farandole {

struct WatchPost {
  int rank = 0;                          // rank in the job
  std::vector<std::vector<int>> groups;  // ranks that share a board; ascending, sorted by their lowest rank
  std::size_t group = 0;                 // group of this rank
  std::size_t slot = 0;                  // slot of this rank on the board
  std::unique_ptr<StatusBoard> board;
  std::unique_ptr<PeerWatch> peers;
  std::unique_ptr<AlertChannel> channel;  // null if there is only one group

  // Ranks of this group by slot, including this rank.
  const std::vector<int>& mates() const { return groups[group]; }
};

// Creates the watch post of this rank. If the ranks of a node cannot share memory, each of them is a
// group of its own. Tests make up nodes: `node` is then the number of this rank's node.
// Collective: every rank of `world` must call this in the same order.
WatchPost make_watch_post(MPI_Comm world, std::optional<int> node = std::nullopt);

}  // namespace farandole

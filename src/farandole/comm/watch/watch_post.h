// From where a rank watches the others: by shared memory and process descriptors those of its node, by
// messages the other nodes.
#pragma once

#include <memory>
#include <mpi.h>
#include <vector>

#include "farandole/comm/rank_layout.h"
#include "farandole/comm/watch/alert_channel.h"
#include "farandole/comm/watch/peer_watch.h"
#include "farandole/comm/watch/status_board.h"

namespace farandole {

struct WatchPost {
  int rank = 0;                          // in the job
  std::vector<std::vector<int>> groups;  // ranks that share a board; ascending, by their lowest rank
  std::size_t group = 0;                 // this rank's
  std::size_t slot = 0;                  // this rank's on the board
  std::unique_ptr<StatusBoard> board;
  std::unique_ptr<PeerWatch> peers;
  std::unique_ptr<AlertChannel> channel;  // null: there is one group

  const std::vector<int>& mates() const { return groups[group]; }  // by slot, this rank too
};

// Collective over `world`. Where a node's ranks cannot share memory, each is a group of its own.
WatchPost make_watch_post(MPI_Comm world);

}  // namespace farandole

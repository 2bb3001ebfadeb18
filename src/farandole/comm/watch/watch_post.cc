#include "farandole/comm/watch/watch_post.h"

#include <algorithm>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/comm/mpi/mpi_check.h"

namespace farandole {
namespace {

struct NodeComm : MpiHandle {
  NodeComm(MPI_Comm world, int world_rank, std::optional<int> node) {
    if (node)
      check_mpi(MPI_Comm_split(world, *node, world_rank, &comm), "MPI_Comm_split");
    else
      check_mpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, world_rank, MPI_INFO_NULL, &comm),
                "MPI_Comm_split_type");
    rank = rank_in(comm);
    size = size_of(comm);
  }
  int rank = 0, size = 1;
};

// The board of the lowest rank, opened by all ranks. It is null on every rank if one rank could not open it.
std::unique_ptr<StatusBoard> shared_board(const NodeComm& node) {
  const auto slots = static_cast<std::size_t>(node.size);
  std::unique_ptr<StatusBoard> board;
  ArenaAddress address;
  try {
    if (node.rank == 0) {
      board = StatusBoard::create(slots);
      address = board->address();
    }
  } catch (const Error&) {
    address.fd = -1;
  }
  check_mpi(MPI_Bcast(&address, sizeof address, MPI_BYTE, 0, node.comm), "MPI_Bcast");
  try {
    if (node.rank != 0 && address.fd >= 0) board = StatusBoard::open(address, slots);
  } catch (const Error&) {
    board = nullptr;
  }
  int all_have_it = board != nullptr ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all_have_it, 1, MPI_INT, MPI_MIN, node.comm), "MPI_Allreduce");
  if (all_have_it == 0) return nullptr;
  board->close_address();
  return board;
}

std::vector<PeerWatch::Peer> peers_of(const NodeComm& node, int world_rank) {
  std::vector<PeerWatch::Peer> all(static_cast<std::size_t>(node.size));
  all[static_cast<std::size_t>(node.rank)] = {world_rank, ::getpid(), own_pid_namespace()};
  check_mpi(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), sizeof(PeerWatch::Peer), MPI_BYTE,
                          node.comm),
            "MPI_Allgather");
  std::erase_if(all, [&](const auto& peer) { return peer.rank == world_rank; });
  return all;
}

// The groups of all ranks, sorted by their lowest rank.
std::vector<std::vector<int>> gather_groups(MPI_Comm world, int lowest) {
  const int size = size_of(world);
  std::vector<int> lowest_of(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&lowest, 1, MPI_INT, lowest_of.data(), 1, MPI_INT, world), "MPI_Allgather");
  std::vector<std::vector<int>> groups;
  std::vector<std::size_t> index(lowest_of.size());
  for (int rank = 0; rank < size; ++rank) {
    const auto r = static_cast<std::size_t>(rank), first = static_cast<std::size_t>(lowest_of[r]);
    if (first == r) {
      index[r] = groups.size();
      groups.emplace_back();
    }
    groups[index[first]].push_back(rank);
  }
  return groups;
}

}  // namespace

WatchPost make_watch_post(MPI_Comm world, std::optional<int> made_up_node) {
  WatchPost post;
  MPI_Comm_rank(world, &post.rank);
  const NodeComm node(world, post.rank, made_up_node);
  post.peers = std::make_unique<PeerWatch>(peers_of(node, post.rank));
  int lowest = post.rank;
  post.board = shared_board(node);
  if (post.board != nullptr)
    check_mpi(MPI_Bcast(&lowest, 1, MPI_INT, 0, node.comm), "MPI_Bcast");
  else
    post.board = StatusBoard::alone();
  post.groups = gather_groups(world, lowest);
  for (std::size_t g = 0; g < post.groups.size(); ++g) {
    const auto& ranks = post.groups[g];
    const auto own = std::find(ranks.begin(), ranks.end(), post.rank);
    if (own == ranks.end()) continue;
    post.group = g;
    post.slot = static_cast<std::size_t>(own - ranks.begin());
  }
  if (post.groups.size() > 1) post.channel = std::make_unique<AlertChannel>(world);
  return post;
}

}  // namespace farandole

#include "farandole/comm/watch/watch_post.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/base/process/process_state.h"
#include "farandole/comm/mpi/mpi_check.h"

namespace farandole {

// Small enough for MPI to send it without waiting for the receiver.
static_assert(sizeof(Alert) < 2048);

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

Life WatchPost::life_of(std::size_t of_slot, const RankStatus& status, std::int64_t now_ns) const {
  if (of_slot == slot) return Life::running;
  if (board->left(of_slot)) return Life::leaving;
  if (status.rank < 0) return Life::unknown;
  const auto process = read_process_state(status.pid);
  if (!process || process->state == 'Z') return Life::ended;
  if (process->state == 'T') return Life::stopped;
  if (process->state == 't') return Life::traced;
  return now_ns - board->published_ns(of_slot) > WatchTimes::silent ? Life::silent : Life::running;
}

std::vector<RankStatus> WatchPost::statuses(std::int64_t now_ns) const {
  std::vector<RankStatus> statuses;
  for (std::size_t mate = 0; mate < board->slots(); ++mate) {
    auto status = board->read(mate);
    status.life = life_of(mate, status, now_ns);
    status.rank = mates()[mate];
    statuses.push_back(status);
  }
  return statuses;
}

bool WatchPost::speaks_for_group(std::int64_t now_ns) const {
  for (std::size_t mate = 0; mate < slot; ++mate)
    if (life_of(mate, board->read(mate), now_ns) == Life::running) return false;
  return true;
}

std::span<const int> WatchPost::contacts(std::size_t of_group) const {
  return std::span(groups[of_group]).first(std::min<std::size_t>(2, groups[of_group].size()));
}

bool WatchPost::collects() const {
  return group < 2 && slot < contacts(group).size();
}

bool WatchPost::leads(const std::set<int>& heard, std::int64_t now_ns) const {
  if (!speaks_for_group(now_ns)) return false;
  if (channel == nullptr) return true;
  const auto first = contacts(0);
  return collects() && (group == 0 || std::none_of(first.begin(), first.end(),
                                                   [&](int contact) { return heard.contains(contact); }));
}

void WatchPost::send_to_others(const Alert& alert) const {
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const int to : contacts(g))
      if (g != group) channel->send(to, alert);
}

AlertChannel::AlertChannel(MPI_Comm parent) {
  check_mpi(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
}

AlertChannel::~AlertChannel() {
  // A rank that never receives must not delay the end. Its message, with the memory, is left to MPI.
  for (auto& one : sending_) {
    int done = 0;
    MPI_Test(&one.request, &done, MPI_STATUS_IGNORE);
    if (done == 0) {
      [[maybe_unused]] auto* left_to_mpi = new std::list<Sending>(std::move(sending_));
      break;
    }
  }
  // The communicator is not freed before MPI_Finalize. Its number would be reused by another communicator. A
  // late message would count there, and that communicator would then wait forever for its own messages.
}

// Errors are ignored, because they only mean that the peer has ended.
void AlertChannel::send(int to, Alert alert) {
  alert.from = rank_;
  auto& one = sending_.emplace_back();
  one.alert = alert;
  if (MPI_Isend(&one.alert, sizeof one.alert, MPI_BYTE, to, 0, comm_, &one.request) != MPI_SUCCESS)
    sending_.pop_back();
}

std::optional<Alert> AlertChannel::receive() {
  sending_.remove_if([](Sending& one) {
    int done = 0;
    return MPI_Test(&one.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  if (MPI_Improbe(MPI_ANY_SOURCE, 0, comm_, &found, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS || found == 0)
    return std::nullopt;
  Alert alert;
  if (MPI_Mrecv(&alert, sizeof alert, MPI_BYTE, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS)
    return std::nullopt;
  return alert;
}

void AlertChannel::await_all(const std::function<bool()>& gives_up) {
  MPI_Request request = MPI_REQUEST_NULL;
  int done = MPI_Ibarrier(comm_, &request) == MPI_SUCCESS ? 0 : 1;
  while (done == 0 && !gives_up()) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

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

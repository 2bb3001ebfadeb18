#include "farandole/comm/watch/watch_post.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <unistd.h>

#include "farandole/base/error.h"
#include "farandole/base/process/process_state.h"
#include "farandole/comm/control/control_communicator.h"

namespace farandole {

namespace {

// The board of the first rank, opened by all ranks. It is null on every rank if one rank could not open it.
std::unique_ptr<StatusBoard> shared_board(ControlCommunicator& node) {
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
  node.broadcast("address of the board", &address, sizeof address, 0);
  try {
    if (node.rank != 0 && address.fd >= 0) board = StatusBoard::open(address, slots);
  } catch (const Error&) {
    board = nullptr;
  }
  std::uint8_t all_have_it = board != nullptr ? 1 : 0;
  node.allreduce("boards", &all_have_it, 1, DType::uint8, ReduceOp::min);
  if (all_have_it == 0) return nullptr;
  board->close_address();
  return board;
}

std::vector<PeerWatch::Peer> peers_of(ControlCommunicator& node, int own_rank) {
  const PeerWatch::Peer own{own_rank, ::getpid(), own_pid_namespace()};
  std::vector<PeerWatch::Peer> all(static_cast<std::size_t>(node.size));
  node.all_gather("processes", &own, all.data(), std::vector<std::size_t>(all.size(), sizeof own));
  std::erase_if(all, [&](const auto& peer) { return peer.rank == own_rank; });
  return all;
}

// The groups of all ranks, sorted by their lowest rank; `lowest` is that of this rank's group.
std::vector<std::vector<int>> gather_groups(ControlCommunicator& all, int lowest) {
  std::vector<int> lowest_of(static_cast<std::size_t>(all.size));
  all.all_gather("groups", &lowest, lowest_of.data(),
                 std::vector<std::size_t>(lowest_of.size(), sizeof lowest));
  std::map<int, std::vector<int>> groups;
  for (std::size_t r = 0; r < lowest_of.size(); ++r) groups[lowest_of[r]].push_back(all.ranks()[r]);
  std::vector<std::vector<int>> sorted;
  for (auto& [first, ranks] : groups) sorted.push_back(std::move(ranks));
  return sorted;
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

AlertChannel::AlertChannel(ControlPlane& control, std::vector<int> ranks)
    : alerts_(control, ranks), ends_(control, std::move(ranks)) {}

void AlertChannel::send(int to, Alert alert) {
  alert.from = alerts_.rank();
  alerts_.send(to, byte_view(alert));
}

std::optional<Alert> AlertChannel::receive() {
  while (const auto message = alerts_.receive_any())
    if (const auto alert = value_of<Alert>(message->bytes)) return alert;
  return std::nullopt;
}

// The ranks of a group tell its first rank, these tell the first of all, and the answer goes back.
void AlertChannel::await_all(const std::vector<std::vector<int>>& groups, std::size_t own,
                             const std::function<bool()>& gives_up) {
  const int rank = ends_.rank(), leader = groups[own].front(), first = groups.front().front();
  std::vector<int> below;
  if (rank == leader) below.assign(groups[own].begin() + 1, groups[own].end());
  if (rank == first)
    for (std::size_t g = 1; g < groups.size(); ++g) below.push_back(groups[g].front());
  const auto hear = [&](std::size_t count) {
    while (count > 0) {
      if (ends_.wait_any(std::chrono::milliseconds(10))) --count;
      if (gives_up()) return false;
    }
    return true;
  };
  if (!hear(below.size())) return;
  if (rank != first) {
    ends_.send(rank == leader ? first : leader, {});
    if (!hear(1)) return;
  }
  for (const int other : below) ends_.send(other, {});
}

WatchPost make_watch_post(ControlPlane& control, std::vector<int> ranks, std::span<const int> node_by_rank) {
  WatchPost post;
  post.rank = control.rank();
  const auto node_of = [&](int rank) { return node_by_rank[static_cast<std::size_t>(rank)]; };
  std::vector<int> mates;
  for (const int rank : ranks)
    if (node_of(rank) == node_of(post.rank)) mates.push_back(rank);
  ControlCommunicator node(control, mates), all(control, ranks);
  post.peers = std::make_unique<PeerWatch>(peers_of(node, post.rank));
  post.board = shared_board(node);
  const int lowest = post.board != nullptr ? mates.front() : post.rank;
  if (post.board == nullptr) post.board = StatusBoard::alone();
  post.groups = gather_groups(all, lowest);
  for (std::size_t g = 0; g < post.groups.size(); ++g) {
    const auto& members = post.groups[g];
    const auto own = std::find(members.begin(), members.end(), post.rank);
    if (own == members.end()) continue;
    post.group = g;
    post.slot = static_cast<std::size_t>(own - members.begin());
  }
  if (post.groups.size() > 1)
    post.channel = std::make_unique<AlertChannel>(control, all_ranks(control.size()));
  return post;
}

}  // namespace farandole

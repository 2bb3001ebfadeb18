// Collectives among ranks of several nodes. They are composed of communicators within the nodes and between
// them, so that little data crosses the network.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/mpi/mpi_communicator.h"

namespace farandole {

// Assigns the ranks of a group to nodes and to leader groups. A leader group is a path between nodes. It has one rank of each node, and a rank may serve several leader
// groups. All ranks of a node serve about the same number of leader groups, and the leader groups of one rank
// have consecutive numbers. Nodes are numbered in the order of their lowest ranks.
// Thread safety: const methods may run concurrently; others need external synchronization.
struct LeaderPlan {
  // leader_groups == 0 chooses the number of ranks of the smallest node, so that no rank serves two leader
  // groups one after the other. If more than half of the largest node's ranks would then be idle, it chooses
  // the number of ranks of the largest node. The number is never larger than that.
  explicit LeaderPlan(std::span<const int> node_by_rank, int leader_groups = 0);

  int node_count() const { return static_cast<int>(members.size()); }
  int local_size(int of_node) const {
    return static_cast<int>(members[static_cast<std::size_t>(of_node)].size());
  }
  // The local rank that serves a leader group on a node.
  int server(int on_node, int in_leader_group) const {
    return static_cast<int>(long{in_leader_group} * local_size(on_node) / leader_groups);
  }
  // True if ranks are numbered node by node, so that a node's parts are contiguous in rank order.
  bool consecutive() const;

  int leader_groups = 1;
  std::vector<std::vector<int>> members;  // by node and local rank: ranks in the group, ascending
  std::vector<int> node;                  // by rank in the group
  std::vector<int> local;                 // by rank in the group
  // By rank in the group: the leader group nearest to the rank. It is the last one that the rank serves; if
  // the rank serves none, it is the last one that a lower rank of its node serves.
  std::vector<int> leader_group;
  std::vector<int> by_leader_group;  // ranks of the group, sorted by leader group, node and local rank
};

class HierarchicalCommunicator : public Communicator {
 public:
  struct Parts {
    // All ranks: checks the calls' signatures, and does the operations that the nodes cannot accelerate.
    std::unique_ptr<MpiCommunicator> all;
    std::unique_ptr<Communicator> node;  // this node's ranks, by local rank
    // By the number of the leader group; null if this rank does not serve it. Ranks in a leader
    // group are node numbers.
    std::vector<std::unique_ptr<Communicator>> leader_groups;
  };
  struct Options {
    std::size_t flat_bytes = 0;             // allreduces up to this size use `all`
    std::size_t latency_bytes = 64 * 1024;  // allreduces up to this size use one leader group
  };

  // The parts need no signature check, because `all` has already checked each call.
  HierarchicalCommunicator(Parts parts, LeaderPlan plan, Options options);

  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank) override;
  void broadcast(std::string_view name, void* data, std::size_t bytes, int root) override;
  void reduce_scatter(std::string_view name, const void* in, void* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) override;
  void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes, void* out,
                  std::span<const std::size_t> receive_bytes) override;
  // Uses the node's communicator, because it moves most of the bytes.
  Buffer allocate(std::size_t bytes) override { return parts_.node->allocate(bytes); }

 private:
  struct Call;  // an allreduce or reduce_scatter in progress
  void reduce_by_leader(const Call& call, std::byte* data, std::size_t count);
  void reduce_by_slices(const Call& call, std::byte* data, std::size_t count);
  void sort_parts(const std::byte* in, std::byte* out, std::span<const std::size_t> count_by_rank,
                  std::size_t element) const;
  std::byte* gather_cells(const Call& call, const std::byte* own_cell, std::byte* memory,
                          std::span<const std::size_t> cells, std::span<const std::size_t> count_by_rank);
  bool serves(int leader_group) const { return plan_.server(own_node_, leader_group) == own_local_; }
  int local_size() const { return plan_.local_size(own_node_); }
  std::byte* scratch(std::size_t bytes);

  Parts parts_;
  LeaderPlan plan_;
  Options options_;
  int own_node_;
  int own_local_;
  std::vector<std::byte> scratch_;  // kept because fresh memory costs page faults
};

}  // namespace farandole

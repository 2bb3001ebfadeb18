// Collectives among ranks of several nodes, composed of communicators within the nodes and between them, so
// that little data crosses the network.
// Thread safety: none; use from one thread at a time.
//
// A small broadcast, all-gather or reduce-scatter is a small allreduce, in which the ranks also compare their
// calls. Other data of these collectives and of an all-to-all passes tables in rounds. A table is memory that
// the ranks of a node share. In each round, all ranks copy a piece of their data into it, the leader groups
// exchange parts of the tables of all nodes, and all ranks copy what is theirs out of it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/net/leader_group.h"
#include "farandole/comm/node_sharing.h"
#include "farandole/comm/shm/shared_memory_communicator.h"
#include "farandole/comm/signature_check.h"

namespace farandole {

// Assigns the ranks of a group to nodes and to leader groups. A leader group is a path between nodes. It has
// one rank of each node, and a rank may serve several leader groups. All ranks of a node serve about the same
// number of leader groups, and the leader groups of one rank have consecutive numbers. Nodes are numbered in
// the order of their lowest ranks.
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

  int leader_groups = 1;
  std::vector<std::vector<int>> members;  // by node and local rank: ranks in the group, ascending
  std::vector<int> node;                  // by rank in the group
  std::vector<int> local;                 // by rank in the group
};

class HierarchicalCommunicator : public Communicator, public NonblockingAllreduce, public NodeSharing {
 public:
  struct Parts {
    std::unique_ptr<Communicator> all;               // reports calls that differ; compares none itself
    std::vector<int> world_ranks;                    // of all ranks, for messages
    std::unique_ptr<SharedMemoryCommunicator> node;  // this node's ranks, by local rank; null for one rank
    // By the number of the leader group; null if this rank does not serve it. Ranks in a leader
    // group are node numbers.
    std::vector<std::unique_ptr<LeaderGroup>> leader_groups;
  };
  struct Options {
    std::size_t latency_bytes = 32 * 1024;           // collectives up to this size use one leader group
    Patience patience{};                             // during waits for other nodes
    Wire wire = Wire::exact;                         // for larger allreduces of sums and averages of float32
    std::size_t table_bytes = std::size_t{4} << 20;  // at least; of the tables above
  };

  HierarchicalCommunicator(Parts parts, LeaderPlan plan, Options options);
  ~HierarchicalCommunicator() override;

  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank) override;
  void broadcast(std::string_view name, void* data, std::size_t bytes, int root) override;
  void reduce_scatter(std::string_view name, const void* in, void* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) override;
  void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes, void* out,
                  std::span<const std::size_t> receive_bytes) override;
  // Memory that the ranks of the node share.
  Buffer allocate(std::size_t bytes) override;
  NonblockingAllreduce* nonblocking_allreduce() override { return this; }
  NodeSharing* node_sharing() override { return plan_.node_count() < size ? this : nullptr; }

  int node_rank() const override { return own_local_; }
  int node_size() const override { return local_size(); }
  bool is_whole() const override { return false; }
  // A rank that is alone on its node shares with nobody.
  std::shared_ptr<NodeBlocks> map(std::span<const std::size_t> bytes, Views views) override;
  void meet(const char* name) override;
  std::span<const std::byte* const> borrow(std::string_view name, const void* data, std::size_t count,
                                           DType dtype, ReduceOp op) override;
  void give_back() override {}

  void start(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  bool test() override;
  void wait() override;
  bool can_progress() const override;

 private:
  struct Pending;
  // Does a part of an operation. Work throws CallMismatch if the ranks' calls differ.
  template <class Work>
  void attempt(Work work) {
    try {
      return work();
    } catch (const CallMismatch&) {
    }
    report_mismatch();
  }
  struct Cells;
  using Messages = LeaderGroup::Messages;
  [[noreturn]] void report_mismatch();
  void begin(const CallDescriptor& call);
  void begin_reduction(const CallDescriptor& call);
  void agree(const CallDescriptor& call);
  void reduce_by_leader(std::byte* data, std::size_t count, DType dtype, ReduceOp op);
  std::byte* share(std::byte* data, std::size_t bytes);
  void enter_part();
  void enter_exchange();
  void leave_exchange();
  void leave_part();
  bool advance_groups();
  std::span<Link* const> active_links();
  void wait_for_groups();
  std::unique_ptr<Slice> node_slice(std::byte* data, std::size_t first);
  std::byte* next_table();
  void meet();
  template <class List>
  void exchange(List list);
  Messages share_of(std::size_t leader_group, const Messages& all) const;
  template <class Bytes>
  void pass(const Cells& cells, Bytes bytes);
  Cells cells_in(std::byte* table, std::size_t bytes) const;
  Cells next_cells(std::size_t bytes);
  std::byte* place_of(const Cells& cells, int from, int to) const;
  std::size_t cell_bytes(std::size_t longest) const;
  int local_size() const { return plan_.local_size(own_node_); }

  Parts parts_;
  LeaderPlan plan_;
  Options options_;
  int own_node_;
  int own_local_;
  std::uint64_t calls_ = 0;
  CallDescriptor call_;  // the current call
  std::unique_ptr<Pending> pending_;
  std::vector<std::size_t> served_;  // leader groups that this rank serves
  std::vector<Link*> active_;        // see active_links()
  ScratchBuffer shared_;  // of the memory of allocate(); kept because fresh memory costs page faults
  const std::size_t table_bytes_;
  std::shared_ptr<NodeBlocks> tables_;
  std::size_t rounds_ = 0;  // that have used a table
};

}  // namespace farandole

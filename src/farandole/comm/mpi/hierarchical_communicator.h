// Collectives among ranks of several nodes. They are composed of communicators within the nodes and between
// them, so that little data crosses the network.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <memory>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/mpi/leader_plan.h"
#include "farandole/comm/mpi/mpi_communicator.h"

namespace farandole {

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

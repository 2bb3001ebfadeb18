// Collectives over the control plane, with which ranks set up what moves tensors. They are slow and small.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/control/message_channel.h"

namespace farandole {

class ControlCommunicator : public Communicator {
 public:
  // Of these ranks of the job, in this order. `control` must outlive this.
  // Collective: every rank of the list must call this in the same order.
  ControlCommunicator(ControlPlane& control, std::vector<int> ranks);

  const std::vector<int>& ranks() const { return channel_.ranks(); }  // of the job
  ControlPlane& control() const { return channel_.control(); }

  // Returns the bytes of all ranks, by rank.
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> own);

  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank) override;
  void broadcast(std::string_view name, void* data, std::size_t bytes, int root) override;
  void reduce_scatter(std::string_view name, const void* in, void* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) override;
  void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes, void* out,
                  std::span<const std::size_t> receive_bytes) override;
  Buffer allocate(std::size_t bytes) override { return private_memory(bytes); }

 private:
  MessageChannel channel_;
  std::vector<int> leaders_;  // the first rank of each node; the first of them collects for all
  std::vector<int> mates_;    // the ranks of this node, if this rank leads it
  int leader_ = 0;            // of this node
};

}  // namespace farandole

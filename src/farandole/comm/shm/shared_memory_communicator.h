// Collectives among the ranks of one node, through memory that all of them map. One communicator is used by
// one thread at a time.
//
// Every rank has an arena that its peers map. An allreduce of memory that lies in the arenas (allocate()) is
// direct: when all ranks have arrived, each reduces its slice straight from all inputs and writes the result
// to all outputs, which moves two bytes a payload byte and rank, the least an in-place allreduce can do; when
// all have arrived again, it is done. Other memory, and messages so small that one meeting is all that
// counts, pass through staging areas that stay in the cache: every rank copies a piece in, meets the others,
// and reads everybody's. Two staging areas take turns, so a piece needs one meeting: who arrives for piece n
// + 1 has read piece n.
//
// At each first meeting the ranks compare what they mean to do: a difference is a UserError with a table, on
// all of them, in the call where it happens.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/shm/node_barrier.h"
#include "farandole/comm/shm/node_memory.h"
#include "farandole/comm/signature_check.h"
#include "farandole/comm/watch/peer_watch.h"

namespace farandole {

struct SharedMemoryOptions {
  std::vector<int> world_ranks{};  // of this communicator's ranks, for messages; default: 0, 1, …
  Patience patience{};
  std::size_t arena_bytes = std::size_t{0};  // address space a rank; 0: the machine's memory
};

class SharedMemoryCommunicator : public Communicator, public NonblockingAllreduce {
 public:
  // Collective over `bootstrap`, whose ranks are of one node and which is needed for nothing else afterwards.
  // Throws Error on all ranks, with the first reason, where they cannot share memory.
  SharedMemoryCommunicator(Communicator& bootstrap, SharedMemoryOptions options = {});
  ~SharedMemoryCommunicator() override;

  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank) override;
  void broadcast(std::string_view name, void* data, std::size_t bytes, int root) override;
  void reduce_scatter(std::string_view name, const void* in, void* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) override;
  void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes, void* out,
                  std::span<const std::size_t> receive_bytes) override;
  Buffer allocate(std::size_t bytes) override;
  NonblockingAllreduce* nonblocking_allreduce() override { return this; }

  void start(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  bool test() override;
  void wait() override;
  bool can_progress() const override { return !pending_ || barrier_->complete(); }

 private:
  // An allreduce between start() and its end.
  struct Pending {
    std::byte* data;
    std::size_t count;
    DType dtype;
    ReduceOp op;
  };

  void look_around(int missing, bool left) const;
  std::string describe_call() const;
  void enter(CallDescriptor call, const void* data, std::size_t bytes);
  void meet();  // the first time in a call, compares what the ranks call
  void compare_calls() const;
  void advance();

  // The rank's data of the call in progress, where it lies in its arena.
  bool is_shared(int r) const;
  bool all_shared() const;
  std::byte* shared(int r) const;
  // The rank's area for the piece in progress.
  std::byte* staging(int r) const;
  std::size_t* sizes_at(int r) const;
  template <class Where>
  std::span<const std::byte* const> everywhere(Where where, std::size_t offset);
  void reduce_slice(std::size_t count, DType dtype, ReduceOp op);
  void reduce_staged(std::byte* data, std::size_t count, DType dtype, ReduceOp op, bool staged);

  std::vector<int> world_ranks_;
  NodeMemory memory_;
  std::vector<std::byte*> places_;  // see everywhere()
  std::unique_ptr<PeerWatch> peers_;
  std::unique_ptr<NodeBarrier> barrier_;
  CallDescriptor call_;  // the one in progress
  bool met_ = false;     // in that one
  std::optional<Pending> pending_;
  std::uint64_t calls_ = 0;   // begun so far
  std::uint64_t pieces_ = 0;  // that went through staging areas
};

}  // namespace farandole

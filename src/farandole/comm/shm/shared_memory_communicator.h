// Collectives among the ranks of one node through memory that all of them map.
// Thread safety: none; use from one thread at a time.
//
// Every rank has an arena that its peers map. An allreduce of memory from the arenas (allocate()) is direct.
// When all ranks have arrived, each rank reduces its slice from all inputs and writes the result to all
// outputs. This moves two bytes per payload byte and rank, which is the minimum for an in-place allreduce.
// The operation is complete when all ranks have arrived again.
//
// Other memory, and messages so small that the number of barriers dominates, use staging areas that stay in
// the cache. Every rank copies a piece into its area, passes the barrier, and reads the areas of all ranks.
// Two staging areas are used alternately, so a piece needs only one barrier: a rank that arrives for piece n
// + 1 has finished reading piece n.
//
// At the first barrier of each call, the ranks compare their call descriptors. A difference is a UserError
// with a table, on all ranks, in the call in which it occurs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "farandole/base/process/process_state.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/node_sharing.h"
#include "farandole/comm/shm/node_barrier.h"
#include "farandole/comm/shm/shared_arena.h"
#include "farandole/comm/signature_check.h"

namespace farandole {

struct SharedMemoryOptions {
  std::vector<int> world_ranks{};  // ranks in the job, for messages; default: 0, 1, …
  Patience patience{};
  // Address space per rank; 0 means the size of the machine's memory.
  std::size_t arena_bytes = std::size_t{0};
};

class SharedMemoryCommunicator : public Communicator, public NonblockingAllreduce, public NodeSharing {
 public:
  // The ranks of `bootstrap` must be on one node. It is not needed afterwards.
  // Throws: Error on all ranks, with the first reason, if they cannot share memory.
  // Collective: every rank of `bootstrap` must call this in the same order.
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
  NodeSharing* node_sharing() override { return size > 1 ? this : nullptr; }

  int node_rank() const override { return rank; }
  int node_size() const override { return size; }
  bool is_whole() const override { return true; }
  std::shared_ptr<NodeBlocks> map(std::span<const std::size_t> bytes, Views views) override;
  void meet(const char* name) override;
  std::span<const std::byte* const> borrow(std::string_view name, const void* data, std::size_t count,
                                           DType dtype, ReduceOp op) override;
  void give_back() override {}

  void start(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  bool test() override;
  void wait() override;
  bool can_progress() const override { return !pending_ || barrier_->complete(); }

  // For operations that consist of this rank's own work on the node's data and of work elsewhere: every rank
  // arrives with its data and waits for the others. It may then read and write data_of() every rank. At the
  // end every rank arrives again, without data.
  // `data` must be from allocate().
  void arrive(CallDescriptor call, const void* data, std::size_t bytes);
  void arrive() { barrier_->arrive(); }
  bool all_arrived() const { return barrier_->complete(); }
  // Throws: CallMismatch on all ranks of the node if their calls differ.
  void wait_for_all();
  std::byte* data_of(int r) const { return shared(r); }
  bool shares(const void* data, std::size_t bytes) const {
    return bytes == 0 || memory_.offset_of(data, bytes).has_value();
  }
  // Tells the other ranks of the node that the calls differ on another node.
  void refuse() { barrier_->leave(Leaving::refused); }
  // Call this regularly during waits for other nodes.
  // Throws: CallMismatch if another rank has called refuse(). Error if another rank of the node is lost.
  void look_around() const;
  // What look_around() does besides, for example for links to other nodes.
  void set_while_waiting(std::function<void()> work) { while_waiting_ = std::move(work); }

 private:
  // An allreduce between start() and its completion.
  struct Pending {
    std::byte* data;
    std::size_t count;
    DType dtype;
    ReduceOp op;
  };

  void notice_refusal() const;
  void look_around_for(int missing, bool left) const;
  std::string describe_call() const;
  void enter(CallDescriptor call, const void* data, std::size_t bytes);
  void meet();  // at the first barrier of a call, compares the ranks' calls
  void compare_calls() const;
  void advance();

  // The rank's data of the current call, if it is in the rank's arena.
  bool is_shared(int r) const;
  bool all_shared() const;
  std::byte* shared(int r) const;
  // The rank's staging area for the current piece.
  std::byte* staging(int r) const;
  std::size_t* sizes_at(int r) const;
  template <class Where>
  std::span<const std::byte* const> everywhere(Where where, std::size_t offset);
  void reduce_slice(std::size_t count, DType dtype, ReduceOp op);
  void reduce_staged(std::byte* data, std::size_t count, DType dtype, ReduceOp op, bool staged);

  std::function<void()> while_waiting_ = [] {};
  std::vector<int> world_ranks_;
  NodeMemory memory_;
  std::vector<std::byte*> places_;  // see everywhere()
  std::unique_ptr<PeerWatch> peers_;
  std::unique_ptr<NodeBarrier> barrier_;
  std::unique_ptr<NodeBarrier> meetings_;   // of meet(), which compares no calls
  CallDescriptor call_;                     // the current call
  mutable std::int64_t left_since_ns_ = 0;  // when it was seen that a rank will not come; 0 if it was not
  bool met_ = false;                        // true after the first barrier of the current call
  std::optional<Pending> pending_;
  std::uint64_t calls_ = 0;   // calls begun so far
  std::uint64_t pieces_ = 0;  // pieces that used staging areas
};

}  // namespace farandole

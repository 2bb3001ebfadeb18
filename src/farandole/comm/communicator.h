// Collective operations on bytes among the ranks of one group. A call returns when this rank may
// use its buffers again.
// Thread safety: none; use from one thread at a time.
// Collective: every rank of the group must call this in the same order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>

#include "farandole/base/dtype.h"
#include "farandole/comm/reduce_op.h"

namespace farandole {

class NodeSharing;  // comm/node_sharing.h

// Zeroed memory with 64-byte alignment. If possible, the communicator reduces it without a copy.
using Buffer = std::unique_ptr<std::byte[], std::function<void(std::byte*)>>;
// Memory that only this process can use.
// Throws: std::bad_alloc if there is no memory left.
Buffer private_memory(std::size_t bytes);

// The sum of the sizes of all ranks' parts.
inline std::size_t sum(std::span<const std::size_t> by_rank) {
  return std::accumulate(by_rank.begin(), by_rank.end(), std::size_t{0});
}

// False for sums of bool and averages of integers.
bool can_reduce(ReduceOp op, DType dtype);
// Throws: UserError that says what to do if can_reduce() is false.
void check_reduction(ReduceOp op, DType dtype);
// Throws: UserError if `root` is not one of `size` ranks.
void check_root(int root, int size);

// An allreduce for a thread that does other work at the same time (caller-driven progress). Only one
// operation can be in progress.
// Thread safety: none; use from one thread at a time. This is the thread that uses the communicator.
class NonblockingAllreduce {
 public:
  virtual ~NonblockingAllreduce() = default;

  // Starts an allreduce as Communicator::allreduce() and returns immediately. Until the operation is
  // complete, it owns `data`, and no other collective of the communicator may be called.
  virtual void start(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) = 0;
  // Does this rank's part of the work as far as possible without waiting for other ranks. Returns true if
  // the operation is complete.
  virtual bool test() = 0;
  // Waits until the operation is complete.
  virtual void wait() = 0;
  // True if test() would do some work or return true.
  virtual bool can_progress() const = 0;
};

// `name` identifies the operation in the timeline and in messages ("bucket 0", "parameter fc1.weight").
// Throws: UserError if the element type does not have the operation (sum of bool, average of integers).
// Throws: UserError on every rank if the ranks' calls differ (comm/signature_check.h). The communicator
// cannot be used afterwards.
// Throws: Error with ExitCode::peer_lost or ExitCode::failure if the transport fails.
class Communicator {
 public:
  Communicator(int own_rank, int world_size) : rank(own_rank), size(world_size) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const int rank;
  const int size;

  // In place: data[i] becomes op over all ranks of data[i]. The result has the same bits on every rank.
  virtual void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) = 0;
  // Rank r contributes bytes_by_rank[r] bytes; every rank passes the same sizes. `out` receives the bytes
  // in rank order. `in` may be exactly this rank's part of `out`, which saves a copy. Otherwise the
  // buffers must not overlap.
  virtual void all_gather(std::string_view name, const void* in, void* out,
                          std::span<const std::size_t> bytes_by_rank) = 0;
  virtual void broadcast(std::string_view name, void* data, std::size_t bytes, int root) = 0;
  // `in` has sum(count_by_rank) elements on every rank. `out` receives this rank's count_by_rank[rank]
  // reduced elements. `out` may be exactly this rank's part of `in`; the other parts of `in` are then
  // unchanged. Otherwise the buffers must not overlap.
  virtual void reduce_scatter(std::string_view name, const void* in, void* out,
                              std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) = 0;
  // Sends send_bytes[r] consecutive bytes of `in` to rank r and receives receive_bytes[r] bytes from it,
  // both in rank order.
  virtual void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes,
                          void* out, std::span<const std::size_t> receive_bytes) = 0;
  virtual Buffer allocate(std::size_t bytes) = 0;
  // nullptr if the transport has no non-blocking allreduce.
  virtual NonblockingAllreduce* nonblocking_allreduce() { return nullptr; }
  // nullptr if the ranks of a node cannot share memory, or if no node has two ranks; the same on all ranks.
  virtual NodeSharing* node_sharing() { return nullptr; }

  // If another thread, a servant, calls the collectives for the thread that made this object: whether the
  // servant has work, and whether that thread waits for it. Call this before the servant begins, and
  // after each change.
  // Thread safety: any thread may call this at any time.
  virtual void note_servant(bool /*has_work*/, bool /*is_awaited*/) {}

  // Returns when every rank has called it.
  void barrier(std::string_view name = "barrier");
};

// Every rank gets the root's text.
// Collective: every rank of the group must call this in the same order.
void broadcast_text(Communicator& ranks, std::string& text, int root);

// The communicator of a single rank. Its collectives only copy memory.
class SoloCommunicator : public Communicator, private NonblockingAllreduce {
 public:
  SoloCommunicator() : Communicator(0, 1) {}

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

 private:
  void start(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  bool test() override { return true; }
  void wait() override {}
  bool can_progress() const override { return true; }
};

// A communicator's memory that is kept from call to call, because fresh memory costs page faults.
class ScratchBuffer {
 public:
  // Returns at least `bytes` bytes, valid until the next call. Their contents are lost if the buffer grows.
  // Ranks that request the same sizes grow in the same calls.
  // Throws: as Communicator::allocate().
  std::byte* get(Communicator& communicator, std::size_t bytes) {
    if (bytes > bytes_) {
      const auto grown = std::max(bytes, bytes_ + bytes_ / 2);
      memory_.reset();  // before the larger allocation, which may need this memory
      bytes_ = 0;
      memory_ = communicator.allocate(grown);
      bytes_ = grown;
    }
    return memory_.get();
  }

 private:
  Buffer memory_;
  std::size_t bytes_ = 0;
};

}  // namespace farandole

// Collective operations over bytes among the ranks of one group. Every rank calls the same operations in the
// same order; one communicator is used by one thread at a time. Calls return when this rank's buffers may be
// used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "farandole/base/dtype.h"

namespace farandole {

enum class ReduceOp : std::uint8_t { sum, average, min, max, product };
std::string_view name_of(ReduceOp op);

// Memory that the communicator reduces without a copy where it can; 64-byte aligned, zeroed.
using Buffer = std::unique_ptr<std::byte[], std::function<void(std::byte*)>>;
// Memory of this process alone. Throws std::bad_alloc.
Buffer private_memory(std::size_t bytes);

// An allreduce for a thread that has other work meanwhile. One at a time; used by the thread that uses the
// communicator.
class NonblockingAllreduce {
 public:
  virtual ~NonblockingAllreduce() = default;

  // As Communicator::allreduce, but returns at once. Until the operation is complete, `data` belongs to it
  // and no other collective of the communicator may be called.
  virtual void start(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) = 0;
  // Does this rank's part of the work as far as it need not wait for others. Returns whether the operation is
  // complete.
  virtual bool test() = 0;
  // Waits until the operation is complete.
  virtual void wait() = 0;
  // Whether test() would do some work or return true.
  virtual bool can_progress() const = 0;
};

// `name` stands for the operation in the timeline and in messages ("bucket 0", "parameter fc1.weight").
// Errors: UserError for an operation that the element type does not have (sum of bool, average of integers),
// and on every rank for calls that differ between ranks (comm/signature_check.h): then the communicator is of
// no more use. Error with ExitCode::peer_lost or failure where the transport fails.
class Communicator {
 public:
  Communicator(int own_rank, int world_size) : rank(own_rank), size(world_size) {}
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const int rank;
  const int size;

  // In place: data[i] = op over ranks of data[i], bit-wise the same on every rank.
  virtual void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) = 0;
  // Rank r contributes bytes_by_rank[r] bytes (known on every rank); `out` holds them in rank order. `in` may
  // be exactly this rank's part of `out`, which saves a copy; else nothing overlaps.
  virtual void all_gather(std::string_view name, const void* in, void* out,
                          std::span<const std::size_t> bytes_by_rank) = 0;
  virtual void broadcast(std::string_view name, void* data, std::size_t bytes, int root) = 0;
  // `in` holds sum(count_by_rank) elements on every rank; `out` gets this rank's count_by_rank[rank] reduced
  // ones. `out` may be exactly this rank's part of `in`, whose other parts stay as they are; else nothing
  // overlaps.
  virtual void reduce_scatter(std::string_view name, const void* in, void* out,
                              std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) = 0;
  // Sends send_bytes[r] consecutive bytes of `in` to rank r, receives receive_bytes[r] from it, both in rank
  // order.
  virtual void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes,
                          void* out, std::span<const std::size_t> receive_bytes) = 0;
  virtual Buffer allocate(std::size_t bytes) = 0;
  // Null where the transport has no allreduce that its caller can drive.
  virtual NonblockingAllreduce* nonblocking_allreduce() { return nullptr; }

  // Returns when every rank has called it.
  void barrier(std::string_view name = "barrier");
};

}  // namespace farandole

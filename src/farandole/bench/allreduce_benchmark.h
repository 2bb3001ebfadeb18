// `farandole bench allreduce`: compares Farandole's collectives with those of MPI in one run, and allreduce
// also with the memory bandwidth limit.
// Thread safety: none; use from one thread at a time.
// Collective: every rank of the group must call this in the same order.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "farandole/bench/measurement.h"
#include "farandole/comm/job/world.h"
#include "farandole/comm/signature_check.h"

namespace farandole {

// The state of the caches before a call.
enum class Buffers {
  warm,     // The same buffer in each call: a rank's part of it stays in that rank's cache.
  written,  // Each rank first writes its whole buffer, as a backward pass does; this is not timed.
  cold,     // Different buffers in turn, together larger than the last-level cache.
};
std::string_view name_of(Buffers buffers);

struct AllreduceBenchmarkOptions {
  std::size_t smallest_bytes = 8;
  std::size_t largest_bytes = std::size_t{1} << 30;
  std::size_t factor = 8;  // Ratio of successive sizes.
  std::vector<Operation> collectives = {Operation::allreduce};
  std::vector<DType> dtypes = {DType::float32};
  ReduceOp op = ReduceOp::sum;
  int repetitions = 15;
  std::vector<Buffers> buffers = {Buffers::warm};
};

struct AllreduceResult {
  Operation collective = Operation::allreduce;
  int ranks = 0;
  // Of the message that is reduced or broadcast, of all parts together that are gathered or scattered, or of
  // all messages of a rank in an all-to-all.
  std::size_t bytes = 0;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  Buffers buffers = Buffers::warm;
  Sample registered;    // In memory of Communicator::allocate.
  Sample unregistered;  // In other memory.
  Sample mpi_spin;      // The collective of MPI, if possible with MPI_IN_PLACE.
  Sample mpi_yield;     // The same with mpi_yield_when_idle; empty if this MPI cannot switch it.
  // Each rank moves the same bytes with a local kernel at the same time, without waiting. Only of allreduces.
  Sample limit;

  const Sample& mpi() const;                      // The faster of the two.
  double algbw_gbps(const Sample& sample) const;  // GB/s (1e9), as in nccl-tests.
  double busbw_gbps(const Sample& sample) const;
};

// Runs on every rank. `each` receives the result of a size as soon as it is measured.
std::vector<AllreduceResult> benchmark_allreduce(World& job, const AllreduceBenchmarkOptions& options,
                                                 const std::function<void(const AllreduceResult&)>& each);

}  // namespace farandole

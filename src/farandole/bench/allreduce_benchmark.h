// `farandole bench allreduce`: our allreduce against MPI_Allreduce and against what the memory gives, in one
// run. Collective; used by the main thread of every rank.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "farandole/bench/sample.h"
#include "farandole/comm/mpi/mpi_job.h"

namespace farandole {

// In which caches the calls find their data.
enum class Buffers {
  warm,     // the same buffer again and again: a rank's part of it stays in that rank's cache
  written,  // each rank first writes its whole buffer, as a backward pass does; that is not timed
  cold,     // buffers in turn that together exceed the last-level cache
};
std::string_view name_of(Buffers buffers);

struct AllreduceBenchmarkOptions {
  std::size_t smallest_bytes = 8;
  std::size_t largest_bytes = std::size_t{1} << 30;
  std::size_t factor = 8;  // between two sizes
  std::vector<DType> dtypes = {DType::float32};
  ReduceOp op = ReduceOp::sum;
  int repetitions = 15;
  std::vector<Buffers> buffers = {Buffers::warm};
};

struct AllreduceResult {
  int ranks = 0;
  std::size_t bytes = 0;
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  Buffers buffers = Buffers::warm;
  Sample registered;    // in memory of Communicator::allocate
  Sample unregistered;  // in any other
  Sample mpi_spin;      // MPI_Allreduce, MPI_IN_PLACE
  Sample mpi_yield;     // the same with mpi_yield_when_idle; empty where this MPI cannot switch
  Sample limit;  // every rank moves as much through a local kernel, at the same time, and waits for nobody

  const Sample& mpi() const;                      // the quicker of the two
  double algbw_gbps(const Sample& sample) const;  // GB/s (1e9), as nccl-tests
  double busbw_gbps(const Sample& sample) const;
};

// On every rank; `each` sees a size's result as soon as it is there.
std::vector<AllreduceResult> benchmark_allreduce(const MpiJob& job, const AllreduceBenchmarkOptions& options,
                                                 const std::function<void(const AllreduceResult&)>& each);

}  // namespace farandole

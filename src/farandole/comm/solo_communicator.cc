#include "farandole/comm/solo_communicator.h"

#include <cstring>

#include "farandole/comm/mpi/mpi_types.h"

namespace farandole {
namespace {

void copy(const void* in, void* out, std::size_t bytes) {
  if (in != out && bytes > 0) std::memcpy(out, in, bytes);
}

}  // namespace

void SoloCommunicator::allreduce(std::string_view, void*, std::size_t, DType dtype, ReduceOp op) {
  check_reduction(op, dtype);
}

void SoloCommunicator::all_gather(std::string_view, const void* in, void* out,
                                  std::span<const std::size_t> bytes_by_rank) {
  copy(in, out, bytes_by_rank[0]);
}

void SoloCommunicator::broadcast(std::string_view, void*, std::size_t, int) {}

void SoloCommunicator::reduce_scatter(std::string_view, const void* in, void* out,
                                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) {
  check_reduction(op, dtype);
  copy(in, out, count_by_rank[0] * size_of(dtype));
}

void SoloCommunicator::all_to_all(std::string_view, const void* in, std::span<const std::size_t> send_bytes,
                                  void* out, std::span<const std::size_t>) {
  copy(in, out, send_bytes[0]);
}

Buffer SoloCommunicator::allocate(std::size_t bytes) {
  return private_memory(bytes);
}

void SoloCommunicator::start(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) {
  allreduce(name, data, count, dtype, op);
}

}  // namespace farandole

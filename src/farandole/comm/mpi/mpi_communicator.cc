#include "farandole/comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "farandole/base/error.h"
#include "farandole/comm/kernels/float16.h"
#include "farandole/comm/kernels/kernels.h"
#include "farandole/comm/mpi/mpi_check.h"

namespace farandole {
namespace {

struct Sum {
  auto operator()(auto a, auto b) const { return a + b; }
};
// a != a is true for a NaN, so a NaN is returned. MPI_MIN and MPI_MAX drop it, or not, as the ranks'
// order has it.
struct Min {
  auto operator()(auto a, auto b) const { return a < b || a != a ? a : b; }
};
struct Max {
  auto operator()(auto a, auto b) const { return a > b || a != a ? a : b; }
};
struct Product {
  auto operator()(auto a, auto b) const { return a * b; }
};

template <class T, class Function>
void reduce_floats(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* from = static_cast<const T*>(in);
  auto* to = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i)
    if constexpr (sizeof(T) == 2)
      from_float(Function{}(to_float(from[i]), to_float(to[i])), to[i]);
    else
      to[i] = Function{}(from[i], to[i]);
}

struct OwnOp {
  ReduceOp op;
  DType dtype;
  MPI_User_function* function;
};
constexpr OwnOp own_ops[] = {
    {ReduceOp::sum, DType::float16, reduce_floats<Float16, Sum>},
    {ReduceOp::sum, DType::bfloat16, reduce_floats<BFloat16, Sum>},
    {ReduceOp::min, DType::float16, reduce_floats<Float16, Min>},
    {ReduceOp::min, DType::bfloat16, reduce_floats<BFloat16, Min>},
    {ReduceOp::min, DType::float32, reduce_floats<float, Min>},
    {ReduceOp::min, DType::float64, reduce_floats<double, Min>},
    {ReduceOp::max, DType::float16, reduce_floats<Float16, Max>},
    {ReduceOp::max, DType::bfloat16, reduce_floats<BFloat16, Max>},
    {ReduceOp::max, DType::float32, reduce_floats<float, Max>},
    {ReduceOp::max, DType::float64, reduce_floats<double, Max>},
    {ReduceOp::product, DType::float16, reduce_floats<Float16, Product>},
    {ReduceOp::product, DType::bfloat16, reduce_floats<BFloat16, Product>},
};

// MPI counts in int, so longer buffers are sent in pieces.
constexpr std::size_t piece_elements = std::size_t{1} << 30;

template <class Function>
void for_each_piece(std::size_t count, Function function) {
  for (std::size_t first = 0; first < count; first += piece_elements)
    function(first, static_cast<int>(std::min(piece_elements, count - first)));
}

// Counts and displacements for MPI's v-collectives. fits is false if they exceed int.
struct Partition {
  explicit Partition(std::span<const std::size_t> sizes) {
    std::size_t total = 0;
    for (const std::size_t size : sizes) {
      offsets.push_back(total);
      total += size;
    }
    fits = total <= INT_MAX;
    if (!fits) return;
    counts.assign(sizes.begin(), sizes.end());
    displacements.assign(offsets.begin(), offsets.end());
  }
  std::vector<std::size_t> offsets;
  std::vector<int> counts;
  std::vector<int> displacements;
  bool fits = false;
};

}  // namespace

MpiTypes::MpiTypes() : ops_(std::size(own_ops)) {
  for (std::size_t i = 0; i < ops_.size(); ++i)
    check_mpi(MPI_Op_create(own_ops[i].function, /*commute=*/1, &ops_[i]), "MPI_Op_create");
}

MpiTypes::~MpiTypes() {
  if (!mpi_is_running()) return;
  for (auto& op : ops_) MPI_Op_free(&op);
}

MPI_Datatype MpiTypes::type(DType dtype) {
  const MPI_Datatype types[] = {MPI_UINT16_T, MPI_UINT16_T, MPI_FLOAT,    MPI_DOUBLE, MPI_INT32_T,
                                MPI_INT64_T,  MPI_UINT8_T,  MPI_CXX_BOOL, MPI_INT8_T, MPI_INT16_T};
  return types[static_cast<std::size_t>(dtype)];
}

MPI_Op MpiTypes::op(ReduceOp op, DType dtype) const {
  check_reduction(op, dtype);
  if (op == ReduceOp::average) op = ReduceOp::sum;
  const auto* const own = std::find_if(std::begin(own_ops), std::end(own_ops),
                                       [&](const OwnOp& one) { return one.op == op && one.dtype == dtype; });
  if (own != std::end(own_ops)) return ops_[static_cast<std::size_t>(own - own_ops)];
  const bool logical = dtype == DType::boolean;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return MPI_SUM;
    case ReduceOp::min:
      return logical ? MPI_LAND : MPI_MIN;
    case ReduceOp::max:
      return logical ? MPI_LOR : MPI_MAX;
    case ReduceOp::product:
      return logical ? MPI_LAND : MPI_PROD;
  }
  return MPI_OP_NULL;
}

MpiCommunicator::MpiCommunicator(MPI_Comm parent, const MpiTypes& types, Waiting waiting,
                                 SignatureCheck signatures)
    : Communicator(rank_in(parent), size_of(parent)),
      types_(types),
      waiting_(waiting),
      signatures_(signatures) {
  check_mpi(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

MpiCommunicator::~MpiCommunicator() {
  if (mpi_is_running()) MPI_Comm_free(&comm_);
}

// The hashes of all calls are equal if their minimum equals their maximum. The maximum is the complement of
// the minimum of the complements. A thread that waits inside MPI spins. If there are more ranks than cores,
// it would compete with the threads that it waits for. So it waits for the arrival of all ranks with short
// sleeps; the hashes are part of that operation.
void MpiCommunicator::agree(CallDescriptor call) {
  if (size == 1 || (waiting_ == Waiting::spin && signatures_ == SignatureCheck::off)) return;
  call.sequence = calls_++;
  const std::uint64_t hash = signatures_ == SignatureCheck::on ? hash_of(call) : 0;
  std::uint64_t least[2] = {hash, ~hash};
  if (waiting_ == Waiting::spin) {
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, least, 2, MPI_UINT64_T, MPI_MIN, comm_), "MPI_Allreduce",
              call.name);
  } else {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(MPI_IN_PLACE, least, 2, MPI_UINT64_T, MPI_MIN, comm_, &request),
              "MPI_Iallreduce", call.name);
    wait_yielding(request, "MPI_Test", call.name);
  }
  if (least[0] == ~least[1]) return;
  signatures_ = SignatureCheck::off;
  report_mismatch(*this, call, ranks_in_world(comm_));
}

void MpiCommunicator::wait_yielding(MPI_Request& request, const char* call, std::string_view name) {
  for (int tests = 0;; ++tests) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call, name);
    if (done != 0) return;
    if (tests < 20)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(tests < 200 ? 10 : 50));
  }
}

std::byte* MpiCommunicator::scratch(std::size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

void MpiCommunicator::allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                                ReduceOp op) {
  agree(allreduce_call(name, count, dtype, op));
  const MPI_Op mpi_op = types_.op(op, dtype);
  if (size == 1) return;
  // float16 overflows at 65,504, so its average is scaled before the sum. The other types are more accurate
  // if they are scaled afterwards.
  const bool scale_first = dtype == DType::float16;
  if (op == ReduceOp::average && scale_first) scale(data, count, dtype, 1.0 / size);
  for_each_piece(count, [&](std::size_t first, int piece) {
    auto* at = static_cast<std::byte*>(data) + first * size_of(dtype);
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, at, piece, MpiTypes::type(dtype), mpi_op, comm_), "MPI_Allreduce",
              name);
  });
  if (op == ReduceOp::average && !scale_first) scale(data, count, dtype, 1.0 / size);
}

void MpiCommunicator::all_gather(std::string_view name, const void* in, void* out,
                                 std::span<const std::size_t> bytes_by_rank) {
  agree(all_gather_call(name, bytes_by_rank));
  const Partition parts(bytes_by_rank);
  const auto own = static_cast<std::size_t>(rank);
  auto* const all = static_cast<std::byte*>(out);
  // MPI requires that all ranks or no rank work in place.
  if (in != all + parts.offsets[own] && bytes_by_rank[own] > 0)
    std::memcpy(all + parts.offsets[own], in, bytes_by_rank[own]);
  if (parts.fits) {
    check_mpi(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, out, parts.counts.data(), parts.displacements.data(),
                             MPI_BYTE, comm_),
              "MPI_Allgatherv", name);
    return;
  }
  for (int root = 0; root < size; ++root)
    broadcast_pieces(name, all + parts.offsets[static_cast<std::size_t>(root)],
                     bytes_by_rank[static_cast<std::size_t>(root)], root);
}

void MpiCommunicator::broadcast(std::string_view name, void* data, std::size_t bytes, int root) {
  agree(broadcast_call(name, bytes, root));
  if (size > 1) broadcast_pieces(name, data, bytes, root);
}

void MpiCommunicator::broadcast_pieces(std::string_view name, void* data, std::size_t bytes, int root) {
  for_each_piece(bytes, [&](std::size_t first, int piece) {
    check_mpi(MPI_Bcast(static_cast<std::byte*>(data) + first, piece, MPI_BYTE, root, comm_), "MPI_Bcast",
              name);
  });
}

void MpiCommunicator::reduce_scatter(std::string_view name, const void* in, void* out,
                                     std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) {
  agree(reduce_scatter_call(name, count_by_rank, dtype, op));
  const MPI_Op mpi_op = types_.op(op, dtype);
  const Partition parts(count_by_rank);
  const std::size_t element = size_of(dtype);
  const auto own = static_cast<std::size_t>(rank);
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  // MPI's buffers must not overlap. float16 is scaled before the sum, as in allreduce.
  const bool scale_first = op == ReduceOp::average && dtype == DType::float16;
  const std::size_t scaled_bytes = scale_first ? (parts.offsets.back() + count_by_rank.back()) * element : 0;
  const std::size_t out_bytes =
      !scale_first && to == from + parts.offsets[own] * element ? count_by_rank[own] * element : 0;
  auto* const memory = scratch(scaled_bytes + out_bytes);
  if (scale_first) {
    std::memcpy(memory, from, scaled_bytes);
    scale(memory, scaled_bytes / element, dtype, 1.0 / size);
    from = memory;
  }
  if (out_bytes > 0) to = memory;
  if (parts.fits)
    check_mpi(MPI_Reduce_scatter(from, to, parts.counts.data(), MpiTypes::type(dtype), mpi_op, comm_),
              "MPI_Reduce_scatter", name);
  else
    reduce_to_each(name, from, to, count_by_rank, dtype, mpi_op);
  if (op == ReduceOp::average && !scale_first) scale(to, count_by_rank[own], dtype, 1.0 / size);
  if (out_bytes > 0) std::memcpy(out, to, out_bytes);
}

void MpiCommunicator::reduce_to_each(std::string_view name, const std::byte* in, std::byte* out,
                                     std::span<const std::size_t> count_by_rank, DType dtype, MPI_Op op) {
  for (int root = 0; root < size; ++root) {
    const std::size_t count = count_by_rank[static_cast<std::size_t>(root)];
    for_each_piece(count, [&](std::size_t first, int piece) {
      check_mpi(MPI_Reduce(in + first * size_of(dtype), out + first * size_of(dtype), piece,
                           MpiTypes::type(dtype), op, root, comm_),
                "MPI_Reduce", name);
    });
    in += count * size_of(dtype);
  }
}

void MpiCommunicator::all_to_all(std::string_view name, const void* in,
                                 std::span<const std::size_t> send_bytes, void* out,
                                 std::span<const std::size_t> receive_bytes) {
  agree(all_to_all_call(name));
  const Partition sends(send_bytes);
  const Partition receives(receive_bytes);
  // MPI itself would truncate a message that is too long, and leave the rest of a buffer as it is if a
  // message is too short.
  std::vector<std::size_t> arriving(send_bytes.size());
  check_mpi(MPI_Alltoall(send_bytes.data(), 1, MPI_UINT64_T, arriving.data(), 1, MPI_UINT64_T, comm_),
            "MPI_Alltoall", name);
  const auto longest = compare_sizes(*this, name, send_bytes, arriving, receive_bytes, ranks_in_world(comm_));
  if (longest <= INT_MAX / static_cast<std::size_t>(size)) {  // on all ranks
    check_mpi(MPI_Alltoallv(in, sends.counts.data(), sends.displacements.data(), MPI_BYTE, out,
                            receives.counts.data(), receives.displacements.data(), MPI_BYTE, comm_),
              "MPI_Alltoallv", name);
    return;
  }
  std::vector<MPI_Request> requests;
  for (int peer = 0; peer < size; ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    for_each_piece(receive_bytes[p], [&](std::size_t first, int piece) {
      check_mpi(MPI_Irecv(static_cast<std::byte*>(out) + receives.offsets[p] + first, piece, MPI_BYTE, peer,
                          0, comm_, &requests.emplace_back()),
                "MPI_Irecv", name);
    });
    for_each_piece(send_bytes[p], [&](std::size_t first, int piece) {
      check_mpi(MPI_Isend(static_cast<const std::byte*>(in) + sends.offsets[p] + first, piece, MPI_BYTE, peer,
                          0, comm_, &requests.emplace_back()),
                "MPI_Isend", name);
    });
  }
  check_mpi(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE),
            "MPI_Waitall", name);
}

Buffer MpiCommunicator::allocate(std::size_t bytes) {
  return private_memory(bytes);
}

}  // namespace farandole

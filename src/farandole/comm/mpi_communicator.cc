#include "farandole/comm/mpi_communicator.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "farandole/base/clock.h"
#include "farandole/comm/mpi_check.h"

namespace farandole {
namespace {

// MPI counts in int; longer buffers go in pieces.
constexpr std::size_t piece_elements = std::size_t{1} << 30;

template <class Function>
void for_each_piece(std::size_t count, Function function) {
  for (std::size_t first = 0; first < count; first += piece_elements)
    function(first, static_cast<int>(std::min(piece_elements, count - first)));
}

int rank_of(MPI_Comm comm) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

int size_of_group(MPI_Comm comm) {
  int size = 1;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

// Counts and displacements as MPI's v-collectives take them; fits() is false where they overflow int.
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

MpiCommunicator::MpiCommunicator(MPI_Comm parent, const MpiTypes& types, Waiting waiting)
    : Communicator(rank_of(parent), size_of_group(parent)), types_(types), waiting_(waiting) {
  check_mpi(MPI_Comm_dup(parent, &comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

MpiCommunicator::~MpiCommunicator() {
  MPI_Comm_free(&comm_);
}

// A thread that waits inside MPI spins. Where ranks outnumber the cores it would take turns with the very
// threads that it waits for, so it first waits for everybody's arrival in naps.
void MpiCommunicator::await_all(std::string_view name) {
  if (waiting_ == Waiting::spin || size == 1) return;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier", name);
  for (int tests = 0;; ++tests) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test", name);
    if (done != 0) return;
    if (tests < 20)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(tests < 200 ? 10 : 50));
  }
}

void MpiCommunicator::allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                                ReduceOp op) {
  const MPI_Op mpi_op = types_.op(op, dtype);
  if (size == 1) return;
  await_all(name);
  // float16 reaches infinity at 65,504, so its average is scaled before the sum; the others are more exact
  // after it.
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
  await_all(name);
  const Partition parts(bytes_by_rank);
  if (parts.fits) {
    check_mpi(MPI_Allgatherv(in, parts.counts[static_cast<std::size_t>(rank)], MPI_BYTE, out,
                             parts.counts.data(), parts.displacements.data(), MPI_BYTE, comm_),
              "MPI_Allgatherv", name);
    return;
  }
  for (int root = 0; root < size; ++root) {
    const auto r = static_cast<std::size_t>(root);
    auto* at = static_cast<std::byte*>(out) + parts.offsets[r];
    if (root == rank) std::memcpy(at, in, bytes_by_rank[r]);
    broadcast(name, at, bytes_by_rank[r], root);
  }
}

void MpiCommunicator::broadcast(std::string_view name, void* data, std::size_t bytes, int root) {
  if (size == 1) return;
  await_all(name);
  for_each_piece(bytes, [&](std::size_t first, int piece) {
    check_mpi(MPI_Bcast(static_cast<std::byte*>(data) + first, piece, MPI_BYTE, root, comm_), "MPI_Bcast",
              name);
  });
}

void MpiCommunicator::reduce_scatter(std::string_view name, const void* in, void* out,
                                     std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) {
  const MPI_Op mpi_op = types_.op(op, dtype);
  const auto own_count = count_by_rank[static_cast<std::size_t>(rank)];
  await_all(name);
  const Partition parts(count_by_rank);
  if (parts.fits) {
    check_mpi(MPI_Reduce_scatter(in, out, parts.counts.data(), MpiTypes::type(dtype), mpi_op, comm_),
              "MPI_Reduce_scatter", name);
  } else {
    for (int root = 0; root < size; ++root) {
      const auto r = static_cast<std::size_t>(root);
      for_each_piece(count_by_rank[r], [&](std::size_t first, int piece) {
        const auto* from = static_cast<const std::byte*>(in) + (parts.offsets[r] + first) * size_of(dtype);
        check_mpi(MPI_Reduce(from, static_cast<std::byte*>(out) + first * size_of(dtype), piece,
                             MpiTypes::type(dtype), mpi_op, root, comm_),
                  "MPI_Reduce", name);
      });
    }
  }
  if (op == ReduceOp::average) scale(out, own_count, dtype, 1.0 / size);
}

void MpiCommunicator::all_to_all(std::string_view name, const void* in,
                                 std::span<const std::size_t> send_bytes, void* out,
                                 std::span<const std::size_t> receive_bytes) {
  await_all(name);
  const Partition sends(send_bytes);
  const Partition receives(receive_bytes);
  int fits = sends.fits && receives.fits ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &fits, 1, MPI_INT, MPI_LAND, comm_), "MPI_Allreduce", name);
  if (fits != 0) {
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
  constexpr std::size_t alignment = 64;
  const std::size_t rounded = std::max(alignment, (bytes + alignment - 1) / alignment * alignment);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, rounded);
  return Buffer(memory, [](std::byte* data) { std::free(data); });
}

}  // namespace farandole

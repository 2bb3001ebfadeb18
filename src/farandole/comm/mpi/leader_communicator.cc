// The ring of LeaderCommunicator, between nodes.
#include <algorithm>
#include <array>
#include <vector>

#include "farandole/comm/kernels/kernels.h"
#include "farandole/comm/mpi/mpi_check.h"
#include "farandole/comm/mpi/mpi_communicator.h"

namespace farandole {
namespace {

// The ring allreduce (Patarasu and Yuan, 2009). The data is split into one chunk per rank, and chunks are
// sent from each rank to the next. In the first size - 1 steps, a rank adds its own values to the chunk that
// it receives. Then the chunks are complete and travel around the ring once more. Each link carries 2 (size -
// 1) / size of the data, which is the minimum for any number of ranks. Open MPI 4.1's own choice for large
// messages carries up to three times as much if the number of ranks is not a power of two. A chunk consists
// of segments, and each segment is sent on as soon as it has arrived.
class Ring {
 public:
  Ring(MPI_Comm comm, int rank, int size, std::string_view name, std::byte* data, std::size_t count,
       DType dtype, ReduceOp op)
      : comm_(comm),
        rank_(rank),
        size_(size),
        name_(name),
        data_(data),
        count_(count),
        dtype_(dtype),
        op_(op),
        receives_(static_cast<std::size_t>(steps())),
        sends_(static_cast<std::size_t>(steps())) {}

  // The size of the largest chunk, rounded up.
  std::size_t chunk_bytes() const { return first_of(1) * size_of(dtype_) + 2 * 64; }

  // `scratch` must have 2 * chunk_bytes() bytes.
  void run(std::byte* scratch) {
    arriving_ = {scratch, scratch + chunk_bytes()};
    for (const auto& segment : segments(rank_)) send(segment, 0);
    post_receives(0);
    for (int step = 0; step < steps(); ++step) {
      if (step + 1 < steps()) post_receives(step + 1);
      take(step);
    }
    for (auto& sends : sends_) wait_all(sends);
  }

 private:
  struct Segment {
    std::size_t first;  // first element
    std::size_t count;
  };

  int steps() const { return 2 * (size_ - 1); }
  bool reduces(int step) const { return step < size_ - 1; }
  // The chunk that arrives in this step.
  int chunk_of(int step) const { return ((rank_ - 1 - step) % size_ + size_) % size_; }

  std::size_t first_of(int chunk) const {
    const std::size_t line = 64 / size_of(dtype_);
    const auto size = static_cast<std::size_t>(size_);
    return std::min(count_, (count_ * static_cast<std::size_t>(chunk) / size + line - 1) / line * line);
  }

  std::vector<Segment> segments(int chunk) const {
    const std::size_t most = 512 * 1024 / size_of(dtype_);
    std::vector<Segment> result;
    const std::size_t end = first_of(chunk + 1);
    for (std::size_t first = first_of(chunk); first < end; first += most)
      result.push_back({first, std::min(most, end - first)});
    return result;
  }

  std::byte* at(std::size_t element) const { return data_ + element * size_of(dtype_); }
  // The chunks of two steps can arrive at the same time.
  std::byte* arriving_at(int step, const Segment& segment) const {
    return arriving_[static_cast<std::size_t>(step % 2)] +
           (segment.first - first_of(chunk_of(step))) * size_of(dtype_);
  }

  void send(const Segment& segment, int at_step) {
    check_mpi(
        MPI_Isend(at(segment.first), static_cast<int>(segment.count * size_of(dtype_)), MPI_BYTE,
                  (rank_ + 1) % size_, 0, comm_, &sends_[static_cast<std::size_t>(at_step)].emplace_back()),
        "MPI_Isend", name_);
  }

  void post_receives(int step) {
    // A complete chunk overwrites the chunk that was sent on `size` steps before, so that
    // send must have finished.
    if (!reduces(step)) wait_all(sends_[static_cast<std::size_t>(step + 1 - size_)]);
    for (const auto& segment : segments(chunk_of(step)))
      check_mpi(
          MPI_Irecv(reduces(step) ? arriving_at(step, segment) : at(segment.first),
                    static_cast<int>(segment.count * size_of(dtype_)), MPI_BYTE, (rank_ + size_ - 1) % size_,
                    0, comm_, &receives_[static_cast<std::size_t>(step)].emplace_back()),
          "MPI_Irecv", name_);
  }

  void take(int step) {
    auto request = receives_[static_cast<std::size_t>(step)].begin();
    for (const auto& segment : segments(chunk_of(step))) {
      check_mpi(MPI_Wait(&*request++, MPI_STATUS_IGNORE), "MPI_Wait", name_);
      std::byte* const own = at(segment.first);
      if (reduces(step)) {
        const std::array<const std::byte*, 2> inputs = {arriving_at(step, segment), own};
        reduce(inputs, {&own, 1}, segment.count, dtype_, op_);
      }
      if (step + 1 < steps()) send(segment, step + 1);
    }
  }

  void wait_all(std::vector<MPI_Request>& requests) {
    check_mpi(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE),
              "MPI_Waitall", name_);
  }

  MPI_Comm comm_;
  int rank_, size_;
  std::string_view name_;
  std::byte* data_;
  std::size_t count_;
  DType dtype_;
  ReduceOp op_;
  std::array<std::byte*, 2> arriving_ = {};
  std::vector<std::vector<MPI_Request>> receives_, sends_;  // by step
};

}  // namespace

LeaderCommunicator::LeaderCommunicator(MPI_Comm parent, const MpiTypes& types, Waiting waiting,
                                       SignatureCheck signatures, std::size_t ring_bytes)
    : MpiCommunicator(parent, types, waiting, signatures), ring_bytes_(ring_bytes) {}

void LeaderCommunicator::allreduce(std::string_view name, void* data, std::size_t count, DType dtype,
                                   ReduceOp op) {
  // For two ranks, MPI's own allreduce moves as little data as the ring.
  if (size <= 2 || op == ReduceOp::average || count * size_of(dtype) < ring_bytes_)
    return MpiCommunicator::allreduce(name, data, count, dtype, op);
  agree(allreduce_call(name, count, dtype, op));
  check_reduction(op, dtype);
  Ring ring(comm(), rank, size, name, static_cast<std::byte*>(data), count, dtype, op);
  ring.run(scratch(2 * ring.chunk_bytes()));
}

}  // namespace farandole

// Collectives through Open MPI.
// Thread safety: none; use from one thread at a time. Different communicators may be used at the same time.
#pragma once

#include <memory>
#include <mpi.h>
#include <vector>

#include "farandole/base/dtype.h"
#include "farandole/comm/communicator.h"
#include "farandole/comm/signature_check.h"

namespace farandole {

// Element types and reductions in MPI's terms, with own reductions where MPI has none (16-bit floats) or
// another (min and max of a NaN). Owns the MPI_Ops. It must live between MPI_Init and MPI_Finalize.
class MpiTypes {
 public:
  MpiTypes();
  ~MpiTypes();
  MpiTypes(const MpiTypes&) = delete;
  MpiTypes& operator=(const MpiTypes&) = delete;

  static MPI_Datatype type(DType dtype);
  // For average this is a sum, which the caller must scale.
  // Throws: UserError if the type does not have the operation.
  MPI_Op op(ReduceOp op, DType dtype) const;

 private:
  std::vector<MPI_Op> ops_;
};

// How a rank waits until all ranks have entered a collective.
enum class Waiting {
  spin,      // spins inside MPI; lowest latency, but uses a core
  yielding,  // tests and sleeps alternately, so that a computing thread keeps its core; adds up to 50 µs
};

// Whether a communicator checks before each collective that all ranks make the same call.
enum class SignatureCheck {
  on,
  off,  // part of a communicator that has already checked
};

class MpiCommunicator : public Communicator {
 public:
  // Duplicates `parent`. `types` must outlive this object.
  // Collective: every rank of the group must call this in the same order.
  MpiCommunicator(MPI_Comm parent, const MpiTypes& types, Waiting waiting,
                  SignatureCheck signatures = SignatureCheck::on);
  ~MpiCommunicator() override;

  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;
  void all_gather(std::string_view name, const void* in, void* out,
                  std::span<const std::size_t> bytes_by_rank) override;
  void broadcast(std::string_view name, void* data, std::size_t bytes, int root) override;
  void reduce_scatter(std::string_view name, const void* in, void* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, ReduceOp op) override;
  void all_to_all(std::string_view name, const void* in, std::span<const std::size_t> send_bytes, void* out,
                  std::span<const std::size_t> receive_bytes) override;
  Buffer allocate(std::size_t bytes) override;

  // The start of every collective. Waits until all ranks have entered it, and gives the
  // call its sequence number.
  // Throws: UserError with a table of differences, on all ranks, if the ranks' calls differ.
  void agree(CallDescriptor call);

 private:
  void wait_yielding(MPI_Request& request, const char* call, std::string_view name);
  std::byte* scratch(std::size_t bytes);  // at least `bytes` bytes; the next collective overwrites them
  void broadcast_pieces(std::string_view name, void* data, std::size_t bytes, int root);
  void reduce_to_each(std::string_view name, const std::byte* in, std::byte* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, MPI_Op op);

  MPI_Comm comm_ = MPI_COMM_NULL;
  const MpiTypes& types_;
  Waiting waiting_;
  SignatureCheck signatures_;
  std::uint64_t calls_ = 0;
  std::vector<std::byte> scratch_;  // kept because fresh memory costs page faults
};

}  // namespace farandole

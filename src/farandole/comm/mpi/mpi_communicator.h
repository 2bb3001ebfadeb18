// Collectives through Open MPI. One communicator is used by one thread at a time; different ones may run at
// the same time.
#pragma once

#include <memory>
#include <mpi.h>
#include <vector>

#include "farandole/comm/communicator.h"
#include "farandole/comm/mpi/mpi_types.h"
#include "farandole/comm/signature_check.h"

namespace farandole {

// How a rank waits until all ranks have entered a collective.
enum class Waiting {
  spin,      // inside MPI: lowest latency, takes a core
  yielding,  // tests and sleeps in turns, so that a thread that computes keeps its core; adds up to 50 µs
};

// Whether a communicator makes sure, before each collective, that all ranks make the same call.
enum class SignatureCheck {
  on,
  off,  // part of a communicator that has made sure already
};

class MpiCommunicator : public Communicator {
 public:
  // Duplicates `parent` (collective over it). `types` outlives this object.
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

  // What every collective starts with: waits until all ranks have come, and throws UserError with the table
  // of differences on all of them where their calls differ. Gives the call its sequence number.
  void agree(CallDescriptor call);

 protected:
  MPI_Comm comm() const { return comm_; }
  std::byte* scratch(std::size_t bytes);  // of at least so many; overwritten by the next collective

 private:
  void wait_yielding(MPI_Request& request, const char* call, std::string_view name);
  [[noreturn]] void report_mismatch(const CallDescriptor& own);
  void broadcast_pieces(std::string_view name, void* data, std::size_t bytes, int root);
  void reduce_to_each(std::string_view name, const std::byte* in, std::byte* out,
                      std::span<const std::size_t> count_by_rank, DType dtype, MPI_Op op);

  MPI_Comm comm_ = MPI_COMM_NULL;
  const MpiTypes& types_;
  Waiting waiting_;
  SignatureCheck signatures_;
  std::uint64_t calls_ = 0;
  std::vector<std::byte> scratch_;  // kept: fresh memory costs page faults
};

}  // namespace farandole

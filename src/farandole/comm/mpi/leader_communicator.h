// MPI between nodes. It works as MpiCommunicator, but large allreduces use a ring of point-to-point messages.
// Thread safety: none; use from one thread at a time.
#pragma once

#include "farandole/comm/mpi/mpi_communicator.h"

namespace farandole {

class LeaderCommunicator : public MpiCommunicator {
 public:
  // Allreduces of `ring_bytes` or more among three ranks or more take the ring, but for averages.
  // Else as MpiCommunicator.
  LeaderCommunicator(MPI_Comm parent, const MpiTypes& types, Waiting waiting, SignatureCheck signatures,
                     std::size_t ring_bytes);

  void allreduce(std::string_view name, void* data, std::size_t count, DType dtype, ReduceOp op) override;

 private:
  std::size_t ring_bytes_;
};

}  // namespace farandole

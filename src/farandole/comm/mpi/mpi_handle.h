// An MPI communicator that is freed with its owner.
// Collective: the owners on all ranks of the group must end in the same order.
#pragma once

#include <mpi.h>

namespace farandole {

struct MpiHandle {
  MpiHandle() = default;
  ~MpiHandle() {
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  }
  MpiHandle(const MpiHandle&) = delete;
  MpiHandle& operator=(const MpiHandle&) = delete;

  MPI_Comm comm = MPI_COMM_NULL;
};

}  // namespace farandole

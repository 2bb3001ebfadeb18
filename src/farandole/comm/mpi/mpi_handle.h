// An MPI communicator that is freed with its owner. Freeing is collective: all its ranks' owners end at the
// same point.
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

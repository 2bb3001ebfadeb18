// The only place that converts MPI's return codes to exceptions and what an MPI communicator is asked for.
// Thread safety: any thread may call this at any time.
#pragma once

#include <mpi.h>
#include <string_view>
#include <vector>

namespace farandole {

// Throws: Error with MPI's own text and `call` ("MPI_Allreduce of bucket 0") if `code` is not MPI_SUCCESS.
void check_mpi(int code, std::string_view call, std::string_view name = {});

// False before MPI was started, and after it was ended, perhaps by the program.
bool mpi_is_running();

int rank_in(MPI_Comm comm);
int size_of(MPI_Comm comm);
std::vector<int> ranks_in_world(MPI_Comm comm);  // by rank in `comm`

// An MPI communicator that is freed with its owner.
// Collective: the owners on all ranks of the group must end in the same order.
struct MpiHandle {
  explicit MpiHandle(MPI_Comm owned = MPI_COMM_NULL) : comm(owned) {}
  ~MpiHandle() {
    if (comm != MPI_COMM_NULL && mpi_is_running()) MPI_Comm_free(&comm);
  }
  MpiHandle(const MpiHandle&) = delete;
  MpiHandle& operator=(const MpiHandle&) = delete;

  MPI_Comm comm;
};

}  // namespace farandole

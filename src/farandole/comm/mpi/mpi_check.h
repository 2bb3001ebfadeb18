// The only place that converts MPI's return codes to exceptions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <mpi.h>
#include <string_view>

namespace farandole {

// Throws: Error with MPI's own text and `call` ("MPI_Allreduce of bucket 0") if `code` is not MPI_SUCCESS.
void check_mpi(int code, std::string_view call, std::string_view name = {});

}  // namespace farandole

// The one place where MPI's return codes become exceptions. Usable from any thread.
#pragma once

#include <mpi.h>
#include <string_view>

namespace farandole {

// Throws Error with MPI's own text and `call` ("MPI_Allreduce of bucket 0").
void check_mpi(int code, std::string_view call, std::string_view name = {});

}  // namespace farandole

// Measures the cost of recording an MPI call of a program.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <filesystem>
#include <optional>

namespace farandole {

// Cost of an MPI_Send to MPI_PROC_NULL, which only checks its arguments. Medians over the
// repetitions; the measurements alternate.
struct MpiCallCost {
  double plain_ns = 0;     // Called by its PMPI_ name, as without the preloaded library.
  double passed_ns = 0;    // Through the library, while nothing is recorded.
  double recorded_ns = 0;  // Through the library, with bytes, tag and ranks recorded.
};

// Returns nullopt if the library for --trace-mpi is not in the folder of the program, or MPI cannot be
// initialized or has been finalized. If MPI is not initialized, this call initializes and finalizes it,
// which is possible only once; therefore this must be the last measurement. The recorder file is written
// to `folder` and deleted.
std::optional<MpiCallCost> measure_mpi_calls(const std::filesystem::path& folder, int repetitions);

}  // namespace farandole

// Measures what recording a program's MPI call costs. Used by one thread.
#pragma once

#include <filesystem>
#include <optional>

namespace farandole {

// Of an MPI_Send to MPI_PROC_NULL, which does nothing but check its arguments; medians over the repetitions,
// which take turns.
struct MpiCallCost {
  double plain_ns = 0;     // by its PMPI_ name, as where the library is not preloaded
  double passed_ns = 0;    // through the library while nothing is recorded
  double recorded_ns = 0;  // through the library, with bytes, tag and ranks
};

// Nothing where the library for --trace-mpi is not beside the program, or MPI cannot begin or has ended.
// Where it has not begun it begins and ends here, which it can only once: then this comes last. A recorder's
// file goes to `folder` and is removed again.
std::optional<MpiCallCost> measure_mpi_calls(const std::filesystem::path& folder, int repetitions);

}  // namespace farandole

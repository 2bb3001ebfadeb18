// Table of the MPI calls of the program (farandole run --trace-mpi), by function. Pure functions.
// Thread safety: any thread may call this at any time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/model/interval.h"
#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// Returns the operation of a blocking collective, "allreduce" for MPI_Allreduce, and "" for other functions.
std::string_view mpi_collective_of(std::string_view function);
// Returns whether no rank can leave the collective before every rank has entered it.
bool synchronizes(std::string_view mpi_function);

// Sums over all ranks, for calls that begin in the window and communicate.
struct MpiCallRow {
  std::string function;
  std::uint64_t count = 0;
  double bytes = 0;  // Sum over all calls.
  double median_us = 0;
  double total_s = 0;
};

// Returns the rows ordered by total duration.
std::vector<MpiCallRow> mpi_call_table(const RunModel& run, Interval window);

}  // namespace farandole

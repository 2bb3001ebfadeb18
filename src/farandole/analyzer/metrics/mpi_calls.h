// The program's own MPI calls (farandole run --trace-mpi), function by function. Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "farandole/analyzer/metrics/interval.h"
#include "farandole/analyzer/model/run_model.h"

namespace farandole {

// Nobody else may name a span so: the prefix is MPI's own.
inline bool is_mpi_call(std::string_view name) {
  return name.starts_with("MPI_");
}

// Of all ranks together, of calls that begin in the window and communicate.
struct MpiCallRow {
  std::string function;
  std::uint64_t count = 0;
  double bytes = 0;  // of all calls
  double median_us = 0;
  double total_s = 0;
};

// The function that took longest first.
std::vector<MpiCallRow> mpi_call_table(const RunModel& run, Interval window);

}  // namespace farandole

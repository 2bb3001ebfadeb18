#include "farandole/analyzer/metrics/mpi_calls.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "farandole/analyzer/statistics/statistics.h"

namespace farandole {

namespace {

struct MpiCollective {
  std::string_view function, operation;
  bool synchronizes = false;
};
constexpr MpiCollective mpi_collectives[] = {{"MPI_Allreduce", "allreduce", true},
                                             {"MPI_Barrier", "barrier", true},
                                             {"MPI_Allgather", "allgather", true},
                                             {"MPI_Allgatherv", "allgather", true},
                                             {"MPI_Alltoall", "alltoall", true},
                                             {"MPI_Alltoallv", "alltoall", true},
                                             {"MPI_Alltoallw", "alltoall", true},
                                             {"MPI_Reduce_scatter", "reduce_scatter", true},
                                             {"MPI_Reduce_scatter_block", "reduce_scatter", true},
                                             {"MPI_Bcast", "broadcast"},
                                             {"MPI_Reduce", "reduce"},
                                             {"MPI_Gather", "gather"},
                                             {"MPI_Gatherv", "gather"},
                                             {"MPI_Scatter", "scatter"},
                                             {"MPI_Scatterv", "scatter"}};

const MpiCollective* mpi_collective_named(std::string_view function) {
  const auto* found = std::find_if(std::begin(mpi_collectives), std::end(mpi_collectives),
                                   [&](const auto& one) { return one.function == function; });
  return found == std::end(mpi_collectives) ? nullptr : found;
}

}  // namespace

std::string_view mpi_collective_of(std::string_view function) {
  const auto* found = mpi_collective_named(function);
  return found == nullptr ? "" : found->operation;
}

bool synchronizes(std::string_view mpi_function) {
  const auto* found = mpi_collective_named(mpi_function);
  return found != nullptr && found->synchronizes;
}

std::vector<MpiCallRow> mpi_call_table(const RunModel& run, Interval window) {
  struct Calls {
    Distribution duration_us;
    double bytes = 0;
  };
  std::map<std::string_view, Calls> functions;
  for (const auto& rank : run.ranks)
    for (const auto& span : rank.collectives()) {
      const std::string_view name = run.names[span.name];
      if (!is_mpi_call(name) || span.start < window.start || span.start > window.end) continue;
      auto& calls = functions[name];
      calls.duration_us.add(static_cast<double>(span.end - span.start) * 1e-3);
      calls.bytes += static_cast<double>(span.what.bytes);
    }
  std::vector<MpiCallRow> rows;
  for (const auto& [name, calls] : functions)
    rows.push_back({std::string(name), calls.duration_us.count(), calls.bytes,
                    calls.duration_us.quantile(0.5), calls.duration_us.sum() * 1e-6});
  std::sort(rows.begin(), rows.end(), [](const MpiCallRow& a, const MpiCallRow& b) {
    return std::tuple(-a.total_s, a.function) < std::tuple(-b.total_s, b.function);
  });
  return rows;
}

}  // namespace farandole

// Measures the cost of recording an MPI call of a program.
#include <dlfcn.h>
#include <memory>
#include <mpi.h>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/bench/sample.h"
#include "farandole/bench/timeline_benchmark.h"
#include "farandole/comm/mpi/mpi_job.h"
#include "farandole/launch/supervisor/mpi_preload.h"
#include "farandole/timeline/mpi_trace.h"

namespace farandole {
namespace {

constexpr int calls_a_repetition = 20'000;

struct Unload {
  void operator()(void* library) const { ::dlclose(library); }
};

using Send = decltype(&PMPI_Send);

double ns_each(Send send) {
  int word = 0;
  const std::int64_t start_ns = now_ns();
  for (int i = 0; i < calls_a_repetition; ++i) send(&word, 1, MPI_INT, MPI_PROC_NULL, 7, MPI_COMM_SELF);
  return static_cast<double>(now_ns() - start_ns) / calls_a_repetition;
}

}  // namespace

std::optional<MpiCallCost> measure_mpi_calls(const std::filesystem::path& folder, int repetitions) {
  const std::unique_ptr<void, Unload> library(::dlopen(mpi_trace_library().c_str(), RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) return std::nullopt;
  const auto send = reinterpret_cast<Send>(::dlsym(library.get(), "MPI_Send"));
  const auto send_calls_to = reinterpret_cast<decltype(&farandole_trace_mpi_calls_2)>(
      ::dlsym(library.get(), "farandole_trace_mpi_calls_2"));
  if (send == nullptr || send_calls_to == nullptr) return std::nullopt;
  int ended = 0, began = 0;
  PMPI_Finalized(&ended);
  PMPI_Initialized(&began);
  if (ended != 0) return std::nullopt;
  std::optional<MpiJob> job;
  try {
    if (began == 0) job.emplace();
  } catch (const UserError&) {  // This is one process of a larger job.
    return std::nullopt;
  }
  TimelineOptions options;
  options.file = folder / "mpi-calls.ftl";
  Sample plain, passed, recorded;
  {
    Timeline timeline(options);
    timeline.name_thread("training");
    const MpiTraceSink sink = sink_into(timeline);
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      plain.us.push_back(ns_each(&PMPI_Send) * 1e-3);
      passed.us.push_back(ns_each(send) * 1e-3);
      send_calls_to(&sink);
      recorded.us.push_back(ns_each(send) * 1e-3);
      send_calls_to(nullptr);
    }
  }
  std::filesystem::remove(options.file);
  return MpiCallCost{plain.median() * 1e3, passed.median() * 1e3, recorded.median() * 1e3};
}

}  // namespace farandole

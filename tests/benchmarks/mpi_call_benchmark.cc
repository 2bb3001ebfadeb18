// What recording an MPI call of a program costs: an MPI_Send to MPI_PROC_NULL, which only checks its
// arguments. Not part of ctest. Needs libfarandole_pmpi.so in the folder of the program.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <filesystem>
#include <mpi.h>

#include "farandole/base/files/temporary_folder.h"
#include "farandole/launch/supervisor/rank_environment.h"
#include "farandole/timeline/mpi_trace.h"
#include "farandole/timeline/timeline.h"

namespace farandole {
namespace {

using Send = decltype(&PMPI_Send);

void* symbol(const char* name) {
  static void* const library = ::dlopen(mpi_trace_library().c_str(), RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : ::dlsym(library, name);
}

void send_to_nobody(benchmark::State& state, Send send) {
  if (send == nullptr)
    return state.SkipWithError("libfarandole_pmpi.so is not in the folder of this program");
  int word = 0;
  for (auto _ : state) send(&word, 1, MPI_INT, MPI_PROC_NULL, 7, MPI_COMM_SELF);
}

void without_library(benchmark::State& state) {
  send_to_nobody(state, &PMPI_Send);
}
BENCHMARK(without_library);

void not_recorded(benchmark::State& state) {
  send_to_nobody(state, reinterpret_cast<Send>(symbol("MPI_Send")));
}
BENCHMARK(not_recorded);

void recorded(benchmark::State& state) {
  const auto send_calls_to =
      reinterpret_cast<decltype(&farandole_trace_mpi_calls_3)>(symbol("farandole_trace_mpi_calls_3"));
  const TemporaryFolder folder(std::filesystem::temp_directory_path());
  TimelineOptions options;
  options.file = folder / "mpi-calls.ftl";
  Timeline timeline(options);
  timeline.name_thread("training");
  const MpiTraceSink sink = sink_into(timeline);
  if (send_calls_to != nullptr) send_calls_to(&sink);
  send_to_nobody(state, reinterpret_cast<Send>(symbol("MPI_Send")));
  if (send_calls_to != nullptr) send_calls_to(nullptr);
}
BENCHMARK(recorded);

}  // namespace
}  // namespace farandole

int main(int argc, char** argv) {
  PMPI_Init(&argc, &argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  PMPI_Finalize();
}

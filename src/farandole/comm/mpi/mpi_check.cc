#include "farandole/comm/mpi/mpi_check.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

#include "farandole/base/clock.h"
#include "farandole/base/error.h"
#include "farandole/base/host.h"
#include "farandole/base/process/launch_environment.h"

namespace farandole {

void check_mpi(int code, std::string_view call, std::string_view name) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::string message(call);
  if (!name.empty()) message += " of '" + std::string(name) + "'";
  throw Error(message + ": " + std::string(text, static_cast<std::size_t>(length)), ExitCode::peer_lost);
}

// MPI_Abort has srun kill the supervisors too, and waits for two seconds in which mpirun does nothing else.
// After a lost peer, the supervisors end the job themselves, and save first what the ranks recorded.
void abort_job(int exit_code) {
  if (const char* const supervised = std::getenv(supervised_variable); supervised != nullptr) {
    if (exit_code == static_cast<int>(ExitCode::peer_lost)) std::_Exit(exit_code);
    const auto rank = launched_rank(&std::getenv);
    announce_abort(supervised, {rank ? rank->value : 0, exit_code, real_time_ns(), host_name()});
    std::freopen("/dev/null", "w", stderr);  // With srun, the banner comes from this process.
  }
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

bool mpi_is_running() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

int rank_in(MPI_Comm comm) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

std::vector<int> ranks_in_world(MPI_Comm comm) {
  const int size = size_of(comm);
  std::vector<int> here(static_cast<std::size_t>(size)), there(here.size());
  std::iota(here.begin(), here.end(), 0);
  MPI_Group group = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  MPI_Comm_group(comm, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(group, size, here.data(), world, there.data());
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return there;
}

}  // namespace farandole

// A program that starts MPI before Farandole and ends MPI without fdl_close().
#include <farandole/capi.h>
#include <mpi.h>
#include <stddef.h>

int main(void) {
  int provided = 0;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  if (fdl_init() != 0) return 1;
  void* all = NULL;
  int ranks = 1, own = 1;
  int64_t never = 0;
  if (fdl_group(NULL, 0, &all) != 0) return 2;
  if (fdl_allreduce(all, "ranks", &ranks, 1, FDL_INT32, FDL_SUM, NULL) != 0) return 3;
  if (fdl_receive(all, &own, sizeof own, -1, 7, NULL, &never) != 0) return 4;
  MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (own != ranks) return 5;
  MPI_Finalize();
  return fdl_is_running() || fdl_close() != 0 ? 6 : 0;
}

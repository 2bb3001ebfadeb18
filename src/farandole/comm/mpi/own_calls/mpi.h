// Renames every MPI call that pmpi/ could record to its PMPI_ name, at no cost. The timeline shows
// Farandole's own communication as collectives, so it must not appear a second time as MPI calls of the
// program. In each layer that calls MPI, CMake lets the compiler find this file before the real mpi.h, so
// that nobody can forget it, and a test checks the programs. It is not for users' programs or public headers.
#pragma once
#pragma GCC system_header  // #include_next is not in the standard

#define FARANDOLE_PRAGMA(text) _Pragma(#text)
#define FARANDOLE_RENAME(old_name, new_name) FARANDOLE_PRAGMA(redefine_extname old_name new_name)
#define FARANDOLE_MPI_CALL(name, count, shape) FARANDOLE_RENAME(MPI_##name, PMPI_##name)
#define FARANDOLE_MPI_OTHER_CALL FARANDOLE_MPI_CALL
#include "farandole/comm/mpi/mpi_calls.inc"
FARANDOLE_MPI_CALL(Init, 2, )
FARANDOLE_MPI_CALL(Init_thread, 4, )
FARANDOLE_MPI_CALL(Finalize, 0, )
#undef FARANDOLE_MPI_OTHER_CALL
#undef FARANDOLE_MPI_CALL
#undef FARANDOLE_RENAME
#undef FARANDOLE_PRAGMA

#include_next <mpi.h>

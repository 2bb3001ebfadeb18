// Makes every MPI call that pmpi/ could record a call of its PMPI_ name, at no cost: what Farandole does for
// itself is in the timeline as its collectives, and must not be there a second time as calls of the program.
// CMake includes this file in front of all of a layer's files that calls MPI, before mpi.h, so that nobody
// has to think of it; a test looks into the programs. Not for programs of users, nor for public headers.
#pragma once

#define FARANDOLE_PRAGMA(text) _Pragma(#text)
#define FARANDOLE_RENAME(old_name, new_name) FARANDOLE_PRAGMA(redefine_extname old_name new_name)
#define FARANDOLE_MPI_CALL(name, count, shape) FARANDOLE_RENAME(MPI_##name, PMPI_##name)
#include "farandole/comm/mpi/mpi_calls.inc"
#include "farandole/comm/mpi/mpi_file_calls.inc"
FARANDOLE_MPI_CALL(Init, 2, )
FARANDOLE_MPI_CALL(Init_thread, 4, )
FARANDOLE_MPI_CALL(Finalize, 0, )
#undef FARANDOLE_MPI_CALL
#undef FARANDOLE_RENAME
#undef FARANDOLE_PRAGMA

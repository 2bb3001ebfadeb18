#!/usr/bin/env bash
# Farandole works in a program that starts or ends MPI itself, and refuses an MPI that only one thread may call.
source "$(dirname "${BASH_SOURCE[0]}")/../../launch/expect.sh"
job() { expect 0 timeout 100 mpirun -q -n 2 "$bin/foreign_mpi_program" "$1"; }
job program_first
job program_last
job job_ends_in_finalize
job own_job_ends_in_finalize
job one_thread
says err '^the program has started MPI without MPI_THREAD_MULTIPLE; .*mpi4py.rc.thread_level = "multiple"'
says err '^the program has ended MPI'
exit $((failures > 0))

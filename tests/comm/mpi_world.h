// The job that the tests of a test program share: MPI can be started only once.
#pragma once

#include "farandole/comm/mpi/mpi_job.h"

namespace farandole {
extern MpiJob* world;
}

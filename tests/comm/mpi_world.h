// The job that all tests of a test program share, because MPI can be started only once.
#pragma once

#include "farandole/comm/job/world.h"

namespace farandole {
extern World* world;
}

// The session that the tests of a test program share: MPI can be started only once.
#pragma once

#include "farandole/farandole.h"

namespace farandole {
extern Session* session;
}

// Facts about the machine of a benchmark.
// Thread safety: any thread may call this at any time.
#pragma once

#include "farandole/base/text/json.h"

namespace farandole {

// {"host":…,"cpu":…,"cores":…,"memory_gib":…,"kernel":…}. Unknown values are left out.
Json machine_facts();

}  // namespace farandole

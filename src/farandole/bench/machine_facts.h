// Facts about the machine of a benchmark.
// Thread safety: any thread may call this at any time.
#pragma once

#include <nlohmann/json.hpp>

namespace farandole {

// {"host":…,"cpu":…,"cores":…,"memory_gib":…,"kernel":…}. Unknown values are left out.
nlohmann::json machine_facts();

}  // namespace farandole

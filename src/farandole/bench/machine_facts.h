// What a benchmark ran on. A plain function.
#pragma once

#include <nlohmann/json.hpp>

namespace farandole {

// {"host":…,"cpu":…,"cores":…,"memory_gib":…,"kernel":…}; what cannot be found is left out.
nlohmann::json machine_facts();

}  // namespace farandole

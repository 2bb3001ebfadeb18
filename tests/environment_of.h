// An environment that has only the given variables.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "farandole/base/process/launch_environment.h"

namespace farandole {

using Variables = std::map<std::string, std::string>;

inline Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

}  // namespace farandole

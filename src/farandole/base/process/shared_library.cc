#include "farandole/base/shared_library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>

namespace farandole {

SharedLibrary::SharedLibrary(const char* variable, std::string name) : name_(std::move(name)) {
  if (const char* const path = std::getenv(variable); path != nullptr && *path != '\0') name_ = path;
  library_ = ::dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ != nullptr) return;
  why_not_ = fmt::format("{} cannot be loaded ({}); load the module of CUDA or set {} to the file's path",
                         name_, ::dlerror(), variable);
}

void* SharedLibrary::look_up(const char* symbol) {
  void* const found = library_ != nullptr ? ::dlsym(library_, symbol) : nullptr;
  if (found == nullptr && why_not_.empty())
    why_not_ =
        fmt::format("{} has no {}; use a version at least as new as the one that Farandole was built with",
                    name_, symbol);
  return found;
}

}  // namespace farandole

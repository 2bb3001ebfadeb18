#include "farandole/base/process/shared_library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>

namespace farandole {

SharedLibrary::SharedLibrary(const char* variable, std::string name) : name_(std::move(name)) {
  const char* const path = variable != nullptr ? std::getenv(variable) : nullptr;
  if (path != nullptr && *path != '\0') name_ = path;
  library_ = ::dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ != nullptr) return;
  why_not_ = fmt::format("{} cannot be loaded ({})", name_, ::dlerror());
  if (variable != nullptr)
    why_not_ += fmt::format("; load the module of CUDA or set {} to the file's path", variable);
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

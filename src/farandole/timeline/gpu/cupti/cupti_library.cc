#include "farandole/timeline/gpu/cupti/cupti_library.h"

#include <dlfcn.h>

namespace farandole {
namespace {

template <class Function>
bool find(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::string CuptiLibrary::load() {
  // libcupti.so.13 is CUPTI's own name for its version 130001. LibTorch may already have loaded it.
  const std::string name = "libcupti.so." + std::to_string(CUPTI_API_VERSION / 10000);
  void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return name + " cannot be loaded (" + ::dlerror() + ")";
  const bool complete = find(library, register_callbacks, "cuptiActivityRegisterCallbacks") &&
                        find(library, register_timestamp, "cuptiActivityRegisterTimestampCallback") &&
                        find(library, enable, "cuptiActivityEnable") &&
                        find(library, disable, "cuptiActivityDisable") &&
                        find(library, flush_all, "cuptiActivityFlushAll") &&
                        find(library, next_record, "cuptiActivityGetNextRecord") &&
                        find(library, dropped, "cuptiActivityGetNumDroppedRecords") &&
                        find(library, result_string, "cuptiGetResultString");
  return complete ? "" : name + " has another version than the one that Farandole was built for";
}

std::string CuptiLibrary::describe(CUptiResult result) const {
  const char* text = nullptr;
  if (result_string(result, &text) != CUPTI_SUCCESS || text == nullptr)
    return "error " + std::to_string(result);
  return text;
}

}  // namespace farandole

#include "farandole/base/bytes.h"

#include <cstdlib>
#include <limits>
#include <malloc.h>
#include <string_view>

namespace farandole {
namespace {

bool tuned_by_user() {
  for (const char* name : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_"})
    if (std::getenv(name) != nullptr) return true;
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  return tunables != nullptr && std::string_view(tunables).find("glibc.malloc.") != std::string_view::npos;
}

}  // namespace

bool keep_freed_memory() {
#ifdef __GLIBC__
  if (tuned_by_user()) return false;
  constexpr int most = std::numeric_limits<int>::max();
  return mallopt(M_MMAP_THRESHOLD, most) == 1 && mallopt(M_TRIM_THRESHOLD, most) == 1;
#else
  return false;
#endif
}

}  // namespace farandole

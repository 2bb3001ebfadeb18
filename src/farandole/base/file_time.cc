#include "farandole/base/file_time.h"

#include <sys/stat.h>

namespace farandole {

std::int64_t changed_ns(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return -1;
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

}  // namespace farandole

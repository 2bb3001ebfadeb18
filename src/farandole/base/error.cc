#include "farandole/base/error.h"

#include <cerrno>
#include <cstring>

namespace farandole {

Error system_error(const std::string& call, const std::string& path) {
  return Error(call + " " + path + ": " + std::strerror(errno));
}

}  // namespace farandole

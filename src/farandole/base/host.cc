#include "farandole/base/host.h"

#include <fstream>
#include <unistd.h>

namespace farandole {

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string boot_id() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return boot;
}

}  // namespace farandole

#include "farandole/base/cores.h"

#include <sched.h>
#include <thread>
#include <unistd.h>

namespace farandole {

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

int allowed_cores() {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(std::thread::hardware_concurrency());
}

std::vector<std::uint64_t> core_mask() {
  std::vector<std::uint64_t> mask(CPU_SETSIZE / 64);
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return mask;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) mask[core / 64] |= std::uint64_t{1} << core % 64;
  return mask;
}

bool has_own_cores() {
  return allowed_cores() < static_cast<int>(std::thread::hardware_concurrency());
}

bool outnumber_cores(int local_ranks) {
  return !has_own_cores() && local_ranks > allowed_cores();
}

}  // namespace farandole
